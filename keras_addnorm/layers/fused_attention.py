"""Attention as one operation of the backend, where it has a fast one."""

from __future__ import annotations

import functools
from typing import Any

import keras
from keras import ops

Tensor = Any


@functools.cache
def has_fused_attention() -> bool:
    """Return whether the backend has an attention that is at least as fast as its steps.

    Measured with benchmarks/attention.py: torch has kernels of its own on every device and JAX
    (flash attention) on accelerators. JAX on CPUs and TensorFlow go through the same steps, a
    little slower.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        return not keras.distribution.list_devices()[0].startswith("cpu")
    return backend == "torch"


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
