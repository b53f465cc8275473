"""Exports a trained model as a SavedModel from strings to strings, and serves it.

The server is `keras_addnorm.serving.server`; `Client` talks to it and to TensorFlow Serving. Each
name is imported when it is first used: a client needs no Keras, and a server no model code.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics.translation import Translation

if TYPE_CHECKING:
    from keras_addnorm.serving.client import Client
    from keras_addnorm.serving.errors import ServingError
    from keras_addnorm.serving.export import export_saved_model
    from keras_addnorm.serving.exported_translator import Translator, load_translator
    from keras_addnorm.serving.graph_tokenizer import GraphTokenizer

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
    "Translator": "exported_translator",
    "export_saved_model": "export",
    "load_translator": "exported_translator",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
