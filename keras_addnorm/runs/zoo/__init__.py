"""The model zoo: small models with their recipes, cards and scores; made here, or fetched."""

from keras_addnorm.runs.zoo.registry import PublishedFile, ZooModel, ZooScores, find, models

__all__ = ["PublishedFile", "ZooModel", "ZooScores", "find", "models"]
