"""Trained models for others: a SavedModel that takes strings and returns strings.

And what serves it: `keras_addnorm.serving.server`, with a `Client` for it and for TensorFlow
Serving. Each name is imported when it is asked for: a client needs no Keras, a server no model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_addnorm.serving.client import Client
    from keras_addnorm.serving.errors import ServingError
    from keras_addnorm.serving.export import export_saved_model
    from keras_addnorm.serving.graph_tokenizer import GraphTokenizer
    from keras_addnorm.serving.translation import Translation
    from keras_addnorm.serving.translator import Translator, load_translator

__all__ = [
    "Client",
    "GraphTokenizer",
    "ServingError",
    "Translation",
    "Translator",
    "export_saved_model",
    "load_translator",
]

_HOMES = {
    "Client": "client",
    "GraphTokenizer": "graph_tokenizer",
    "ServingError": "errors",
    "Translation": "translation",
    "Translator": "translator",
    "export_saved_model": "export",
    "load_translator": "translator",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
