"""Encoder-decoder Transformers for Keras 3 whose Add & Norm is a part you choose.

Importing this package is cheap: a subpackage (`keras_addnorm.layers`, `keras_addnorm.models`, ...)
is imported when it is first used, and Keras and TensorFlow with the first that needs them.

Example:
    >>> import keras_addnorm
    >>> keras_addnorm.__version__
    '0.1.0'
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_SUBPACKAGES = (
    "alignment",
    "basics",
    "data",
    "decoding",
    "diagnostics",
    "distribution",
    "explain",
    "interop",
    "layers",
    "models",
    "norms",
    "runs",
    "schemes",
    "serving",
    "training",
)

__all__ = ["__version__", *_SUBPACKAGES]


# What a program begins with may be imported from here, too.
_FROM_SUBPACKAGES = {
    "AddNorm": "layers",
    "TransformerEncoder": "layers",
    "TransformerEncoderLayer": "layers",
    "TransformerDecoder": "layers",
    "TransformerDecoderLayer": "layers",
    "Seq2SeqConfig": "models",
    "Seq2SeqTransformer": "models",
}


def __getattr__(name: str) -> Any:
    """Imports a subpackage, or a class of one, when it is first used."""
    if name in _FROM_SUBPACKAGES:
        return getattr(importlib.import_module(f"{__name__}.{_FROM_SUBPACKAGES[name]}"), name)
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists what there is for users, so that tab completion finds it before it is imported."""
    dunders = (name for name in globals() if name.startswith("__"))
    return sorted({*dunders, *_SUBPACKAGES, *_FROM_SUBPACKAGES})
