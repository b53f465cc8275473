"""Normalisations by name. Each entry makes a Keras layer that works on the last axis.

Both normalise each position by itself and compute their statistics in float32 when the model runs
in half precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

NormFactory = Callable[..., keras.layers.Layer]
"""Takes `epsilon` and Keras' layer keywords (`name`, `dtype`), returns an unbuilt layer."""

__all__ = ["NormFactory", "get", "names"]


def _rms_norm(**arguments: Any) -> keras.layers.Layer:
    layer = keras.layers.RMSNormalization(**arguments)
    # Keras does not say so, and would warn that the mask is lost: each position is by itself.
    layer.supports_masking = True
    return layer


_NORMS: dict[str, NormFactory] = {
    # gamma (x - mean) / sqrt(variance + epsilon) + beta: Ba et al., 2016 (arXiv:1607.06450).
    "layer_norm": keras.layers.LayerNormalization,
    # gamma x / sqrt(mean(x^2) + epsilon): Zhang and Sennrich, 2019 (arXiv:1910.07467).
    "rms_norm": _rms_norm,
}


def names() -> tuple[str, ...]:
    """Return the names that `get` knows."""
    return tuple(_NORMS)


def get(name: str) -> NormFactory:
    """Return the factory of a norm.

    Args:
        name: One of `names()`.

    Returns:
        A callable that makes the Keras layer: `get("rms_norm")(epsilon=1e-6)`.

    Raises:
        ValueError: If the name is unknown.
    """
    if name not in _NORMS:
        raise ValueError(
            f"There is no such norm. Expected one of {', '.join(_NORMS)}. Received: {name!r}"
        )
    return _NORMS[name]
