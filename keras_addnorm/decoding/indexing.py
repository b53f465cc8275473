"""Entries of tensors by their index, in as few operations as each backend has for it."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_addnorm.layers.shapes import size_of

Tensor = Any


def select(rows: Tensor, order: Tensor) -> Tensor:
    """Return some entries of each row.

    Args:
        rows: `(N, M, ...)`.
        order: `(N, m)`, which ones, from 0 to M - 1.

    Returns:
        `(N, m, ...)`.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Keras' operation is twenty of TensorFlow's, and transposes all rows.
        return tf.gather(rows, order, axis=1, batch_dims=1)
    for _ in rows.shape[2:]:
        order = ops.expand_dims(order, -1)
    return ops.take_along_axis(rows, order, axis=1)


def take(x: Tensor, indices: Tensor) -> Tensor:
    """Return some entries of the first axis.

    Args:
        x: `(N, ...)`.
        indices: `(n, ...)`, which ones, from 0 to N - 1.

    Returns:
        `(n, ...)`.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Keras' operation is six of TensorFlow's, for indices that count from the end.
        return tf.gather(x, indices)
    return ops.take(x, indices, axis=0)


def write_column(sequences: Tensor, index: Tensor, tokens: Tensor) -> Tensor:
    """Return `sequences` `(..., T)` with `tokens` `(...)` at position `index`."""
    is_here = ops.equal(ops.arange(size_of(sequences, -1), dtype="int32"), index)
    return ops.where(is_here, ops.expand_dims(tokens, -1), sequences)
