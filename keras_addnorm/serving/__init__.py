"""Trained models for others: a SavedModel that takes strings and returns strings."""

from keras_addnorm.serving.graph_tokenizer import GraphTokenizer

__all__ = ["GraphTokenizer"]
