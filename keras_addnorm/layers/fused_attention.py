"""Attention in one operation of the backend, where it has a fast one."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

Tensor = Any

# Where the backend's operation was at least as fast as the steps one by one; measured, see
# docs/attention_and_positions.md. TensorFlow has no kernel of its own: the operation is the steps.
_BACKENDS = ("jax", "torch")


def has_fused_attention() -> bool:
    """Return whether the backend has an attention that is faster than its steps one by one."""
    return keras.backend.backend() in _BACKENDS


def fused_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Return `softmax(q k^T) v`, zeros where there is nothing to attend to.

    Args:
        queries: Scaled queries, `(B, T, H, K)`.
        keys: `(B, S, G, K)`.
        values: `(B, S, G, K)`.
        mask: Booleans that broadcast to `(B, H, T, S)`, or `None`.

    Returns:
        `(B, T, H, K)`.
    """
    context = ops.dot_product_attention(queries, keys, values, mask=mask, scale=1.0)
    if mask is None:
        return context
    # The backends make an even average of a row with nothing to attend to.
    has_key = ops.any(mask, axis=-1)  # (B, 1, T)
    return ops.where(ops.swapaxes(has_key, 1, 2)[..., None], context, 0.0)
