"""Sums over the last axis in the way that is fast on the device.

On processors they are matrix products with a vector: XLA's loops add numbers one after the other,
its products several at a time. XLA also computes what it sums anew in each loop that needs it, and
not what it multiplies. Nothing is reshaped, because a reshape slows a loop of XLA's down; but where
only the batch size is unknown, as in decoding, rows are flattened, because TensorFlow puts 24 shape
operations around each product otherwise. Where more sizes are unknown, TensorFlow would copy the
array, so it is reshaped for its sums alone.

On accelerators a product may be rounded to fewer bits, and sums are fast: there they are plain.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

Tensor = Any


def row_means(x: Tensor) -> Tensor:
    """Return means over the last axis.

    Args:
        x: `(..., D)`, floating.

    Returns:
        `(..., 1)`.
    """
    width = x.shape[-1]
    if not sums_are_products():
        return ops.sum(x * (1.0 / width), axis=-1, keepdims=True)
    # A NumPy array becomes one constant for all norms of a program, and no operation.
    return _product(x, np.full((width, 1), 1.0 / width, ops.dtype(x)))


def row_sums(x: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums over the last axis."""
    if not sums_are_products():
        return ops.sum(x * weights, axis=-1, keepdims=True)
    return _product(x, ops.expand_dims(weights, -1))


@functools.cache
def sums_are_products() -> bool:
    """Return whether sums are matrix products here."""
    return keras.backend.backend() in ("tensorflow", "jax") and all(
        device.startswith("cpu") for device in keras.distribution.list_devices()
    )


def _product(x: Tensor, column: Tensor) -> Tensor:
    # (..., D), (D, 1) -> (..., 1)
    *leading, width = x.shape
    if None not in leading or len(leading) == 1:
        return ops.matmul(x, column)
    # TensorFlow's `matmul` copies an array of unknown sizes in order to transpose it.
    sums = ops.matmul(ops.reshape(x, (-1, width)), column)
    return ops.reshape(sums, (*ops.shape(x)[:-1], 1))
