"""Trained models for others: a SavedModel that takes strings and returns strings."""

from keras_addnorm.serving.export import export_saved_model
from keras_addnorm.serving.graph_tokenizer import GraphTokenizer
from keras_addnorm.serving.translator import Translation, Translator, load_translator

__all__ = [
    "GraphTokenizer",
    "Translation",
    "Translator",
    "export_saved_model",
    "load_translator",
]
