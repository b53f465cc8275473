"""Arithmetic of several streams: coefficients in float32, sums in the dtype of the streams."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
from keras import ops

from keras_addnorm.basics.tensors import row_means, sums_are_products
from keras_addnorm.schemes.plan import Tensor

_EPSILON = 1e-6


def precise(x: Tensor) -> Tensor:
    """Return `x` in the dtype of coefficients: float32, or float64 where `x` is."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def total(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors, from the first to the last."""
    first, *others = tensors
    for other in others:
        first = first + other
    return first


def mean(streams: Sequence[Tensor]) -> Tensor:
    """Return the mean over streams."""
    return total(streams) if len(streams) == 1 else total(streams) * (1 / len(streams))


def weigh(weights: Tensor, streams: Sequence[Tensor]) -> Tensor:
    """Return the sum of `weights[..., i] * streams[i]`, in the dtype of the streams."""
    weights = ops.cast(weights, streams[0].dtype)
    return total([weights[..., i : i + 1] * x for i, x in enumerate(streams)])


def shares(logits: Tensor) -> Tensor:
    """Return the softmax over the last axis; one logit alone, of which Keras warns, gives 1."""
    return ops.softmax(logits, axis=-1) if logits.shape[-1] > 1 else ops.ones_like(logits)


def mix(matrix: Tensor, streams: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the streams `sum_j matrix[..., i, j] * streams[j]`, one for each row i.

    On processors they are one product: XLA keeps what it multiplies, while it computes what is only
    added anew in each loop that reads it, streams of streams of streams, 2**depth times over.
    """
    rows = range(matrix.shape[-2])
    if not sums_are_products():
        return tuple(weigh(matrix[..., i, :], streams) for i in rows)
    mixed = ops.matmul(ops.cast(matrix, streams[0].dtype), ops.stack(streams, axis=-2))
    return tuple(mixed[..., i, :] for i in rows)


def seen(x: Tensor, projection: Tensor) -> Tensor:
    """Return `tanh(N(x) W)`, `(..., D)` -> `(..., k)`, with N a layer norm without weights."""
    x = precise(x)
    x = x - row_means(x)
    scale = ops.rsqrt(row_means(ops.square(x)) + _EPSILON)
    # The division follows the product: k numbers instead of D.
    return ops.tanh(ops.matmul(x, precise(projection)) * scale)


def basis_vector(index: int, size: int, others: float = 0.0) -> tuple[float, ...]:
    """Return 1 at an index and another number elsewhere."""
    return tuple(1.0 if i == index else others for i in range(size))


def identity(
    size: int, diagonal: float = 1.0, others: float = 0.0
) -> tuple[tuple[float, ...], ...]:
    """Return a matrix with one number on its diagonal and another elsewhere."""
    return tuple(tuple(diagonal if i == j else others for j in range(size)) for i in range(size))


def spread(size: int) -> tuple[float, ...]:
    """Return numbers from -1 to 1 at equal distances; 0 if there is but one."""
    return tuple(0.0 if size == 1 else 2 * i / (size - 1) - 1 for i in range(size))


def logit(share: float) -> float:
    """Return the number whose logistic is `share`, 20 (a float32 sees no difference) for 1."""
    return math.log(share / (1 - share)) if share < 1 else 20.0
