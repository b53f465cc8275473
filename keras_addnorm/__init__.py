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
from types import ModuleType

__version__ = "0.1.0"

_SUBPACKAGES = (
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


def __getattr__(name: str) -> ModuleType:
    """Imports a subpackage when it is first used."""
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists subpackages too, so that tab completion finds them before they are imported."""
    return sorted({*globals(), *_SUBPACKAGES})
