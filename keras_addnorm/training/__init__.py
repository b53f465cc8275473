"""Everything between a model and `model.fit`: loss, metrics and schedules."""

from keras_addnorm.training.losses import MaskedSparseCategoricalCrossentropy
from keras_addnorm.training.metrics import MaskedAccuracy, Perplexity
from keras_addnorm.training.schedules import InverseSquareRootSchedule, NoamSchedule

__all__ = [
    "InverseSquareRootSchedule",
    "MaskedAccuracy",
    "MaskedSparseCategoricalCrossentropy",
    "NoamSchedule",
    "Perplexity",
]
