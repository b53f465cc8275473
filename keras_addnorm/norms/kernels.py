"""Layer and RMS normalisation with gradients written by hand.

Differentiated automatically, a norm keeps several arrays of the size of its input and walks over
memory for each step of the chain rule. Here the backward pass keeps the input and one or two
numbers a row. For a row `x` with `c = x - mean(x)` (RMS: `c = x`), `r = 1 / sqrt(mean(c^2) +
epsilon)` and the incoming gradient `g`::

    y       = r c gamma + beta
    dgamma  = sum over rows of r c g            dbeta = sum over rows of g
    dx      = r gamma g - r mean(gamma g) - r^3 c mean(gamma g c)     (RMS: no second term)

Sums over a row are matrix products with a vector where the computer has no accelerator: XLA's
loops on processors add the numbers of a sum that they compute on the way one after the other, and
those of a product several at a time. On accelerators a product may be rounded to fewer bits, and
sums are fast: there they are plain. So are sums down the columns everywhere: as a product of fewer
than 4096 rows XLA would fuse them, too, and then stride through memory, ten times as slow. torch
has a kernel of its own, which Keras calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import keras
from keras import ops

from keras_addnorm.norms.norm import Tensor

Gradient = Callable[[Tensor], tuple[Tensor, ...]]
RowNorm = Callable[..., tuple[Tensor, Gradient]]


def layer_normalize(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Return `gamma (x - mean) / sqrt(variance + epsilon) + beta` over the last axis.

    Args:
        x: `(..., D)`, float32 or float64.
        gamma: `(D,)`, of the same dtype.
        beta: `(D,)`, of the same dtype.
        epsilon: Added to the variance.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    if _backend_has_kernels(x):
        return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)
    return _by_rows(_layer_normalize_rows, x, gamma, beta, epsilon=epsilon)


def rms_normalize(x: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    """Return `scale x / sqrt(mean(x^2) + epsilon)` over the last axis.

    Args:
        x: `(..., D)`, float32 or float64.
        scale: `(D,)`, of the same dtype.
        epsilon: Added to the mean square.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    if _backend_has_kernels(x):
        return ops.rms_normalization(x, scale, axis=-1, epsilon=epsilon)
    return _by_rows(_rms_normalize_rows, x, scale, epsilon=epsilon)


def _backend_has_kernels(x: Tensor) -> bool:
    # Keras hands float64 to torch's kernels rounded to float32.
    return keras.backend.backend() == "torch" and ops.dtype(x) == "float32"


def _differentiates_twice() -> bool:
    """Whether a gradient by hand can be differentiated like any other computation."""
    return keras.backend.backend() in ("tensorflow", "jax")


def _by_rows(normalize: RowNorm, x: Tensor, *weights: Tensor, epsilon: float) -> Tensor:
    """Call a function of `(N, D)` and of weights `(1, D)` that returns its gradient, too."""

    def normalize_rows(*arguments: Tensor) -> tuple[Tensor, Gradient]:
        return normalize(*arguments, epsilon=epsilon)

    rows = ops.reshape(x, (-1, x.shape[-1]))
    arguments = (rows, *(ops.expand_dims(weight, 0) for weight in weights))
    if _differentiates_twice():
        y = ops.custom_gradient(normalize_rows)(*arguments)
    else:
        y, _ = normalize_rows(*arguments)
    return ops.reshape(y, ops.shape(x))


def _layer_normalize_rows(
    x: Tensor, gamma: Tensor, beta: Tensor, *, epsilon: float
) -> tuple[Tensor, Gradient]:
    mean = _row_sums(x, _share(gamma))
    centred = x - mean
    reciprocal = _reciprocal_deviation(centred, gamma, epsilon)

    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dx, dgamma = _gradients_of_scaling(upstream, x - mean, reciprocal, gamma)
        dx = dx - reciprocal * _row_sums(upstream, gamma * _share(gamma))
        return dx, dgamma, ops.sum(upstream, axis=0, keepdims=True)

    return centred * reciprocal * gamma + beta, gradient


def _rms_normalize_rows(x: Tensor, scale: Tensor, *, epsilon: float) -> tuple[Tensor, Gradient]:
    reciprocal = _reciprocal_deviation(x, scale, epsilon)

    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
        return _gradients_of_scaling(upstream, x, reciprocal, scale)

    return x * reciprocal * scale, gradient


def _reciprocal_deviation(centred: Tensor, like: Tensor, epsilon: float) -> Tensor:
    return ops.rsqrt(_row_sums(ops.square(centred), _share(like)) + epsilon)


def _gradients_of_scaling(
    upstream: Tensor, centred: Tensor, reciprocal: Tensor, gamma: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of `centred * reciprocal * gamma`: to `centred` and to `gamma`."""
    product = upstream * centred
    along = _row_sums(product, gamma * _share(gamma))
    dx = upstream * (reciprocal * gamma) - centred * (along * reciprocal**3)
    return dx, ops.sum(reciprocal * product, axis=0, keepdims=True)


def _share(like: Tensor) -> Tensor:
    """Return a row of 1 / D: a sum with these weights is a mean."""
    return ops.full_like(like, 1.0 / like.shape[-1])


def _row_sums(x: Tensor, weights: Tensor) -> Tensor:
    # (N, D), (1, D) -> (N, 1)
    if _row_sums_as_products():
        return ops.matmul(x, ops.transpose(weights))
    return ops.sum(x * weights, axis=-1, keepdims=True)


@functools.cache
def _row_sums_as_products() -> bool:
    return keras.backend.backend() in ("tensorflow", "jax") and all(
        device.startswith("cpu") for device in keras.distribution.list_devices()
    )
