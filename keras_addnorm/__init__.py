"""Encoder-decoder Transformers for Keras 3 whose Add & Norm is a part you choose.

Importing this package is cheap: a room (`keras_addnorm.layers`, `keras_addnorm.models`, ...) is
imported when it is first used, so nothing pulls in Keras, let alone TensorFlow, before it has to.

Example:
    >>> import keras_addnorm
    >>> keras_addnorm.__version__
    '0.1.0'
"""

from __future__ import annotations

import importlib
from types import ModuleType

__version__ = "0.1.0"

_ROOMS = (
    "basics",
    "data",
    "decoding",
    "diagnostics",
    "distribution",
    "interop",
    "layers",
    "models",
    "norms",
    "runs",
    "schemes",
    "serving",
    "training",
)

__all__ = ["__version__", *_ROOMS]


def __getattr__(name: str) -> ModuleType:
    """Imports a room the first time it is asked for."""
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the rooms too, so that tab completion finds them before they are imported."""
    return sorted({*globals(), *_ROOMS})
