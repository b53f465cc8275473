"""Layer and RMS normalisation with gradients written by hand.

Differentiated automatically, a norm keeps several arrays of the size of its input and walks over
memory for each step of the chain rule. Here the backward pass keeps the input and one or two
numbers a row. For a row `x` with `c = x - mean(x)` (RMS: `c = x`), `r = 1 / sqrt(mean(c^2) +
epsilon)` and the incoming gradient `g`::

    y       = r c gamma + beta
    dgamma  = sum over rows of r c g            dbeta = sum over rows of g
    dx      = r gamma g - r mean(gamma g) - r^3 c mean(gamma g c)     (RMS: no second term)

The sums are matrix products with a vector where the computer has no accelerator: XLA's loops on
processors add the numbers of a fused sum up one after the other, and its products do not. On
accelerators it is the other way round, and a product may be rounded to fewer bits: there they are
plain sums. torch has a kernel of its own, which Keras calls.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
from keras import ops

from keras_addnorm.norms.norm import Tensor


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
    if not _has_gradients_by_hand():
        return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)
    rows = ops.reshape(x, (-1, x.shape[-1]))
    y = _layer_normalize_rows(epsilon)(rows, ops.expand_dims(gamma, 0), ops.expand_dims(beta, 0))
    return ops.reshape(y, ops.shape(x))


def rms_normalize(x: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    """Return `scale x / sqrt(mean(x^2) + epsilon)` over the last axis.

    Args:
        x: `(..., D)`, float32 or float64.
        scale: `(D,)`, of the same dtype.
        epsilon: Added to the mean square.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    if not _has_gradients_by_hand():
        return ops.rms_normalization(x, scale, axis=-1, epsilon=epsilon)
    rows = ops.reshape(x, (-1, x.shape[-1]))
    y = _rms_normalize_rows(epsilon)(rows, ops.expand_dims(scale, 0))
    return ops.reshape(y, ops.shape(x))


def _has_gradients_by_hand() -> bool:
    return keras.backend.backend() in ("tensorflow", "jax")


def _layer_normalize_rows(epsilon: float) -> Any:
    @ops.custom_gradient
    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Any]:
        mean = _row_sums(x, _share(gamma))
        centred = x - mean
        reciprocal = _reciprocal_deviation(centred, gamma, epsilon)

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            dx, dgamma = _scale_gradients(upstream, x - mean, reciprocal, gamma)
            dx = dx - reciprocal * _row_sums(upstream, gamma * _share(gamma))
            return dx, dgamma, _column_sums(ops.ones_like(reciprocal), upstream)

        return centred * reciprocal * gamma + beta, gradient

    return normalize


def _rms_normalize_rows(epsilon: float) -> Any:
    @ops.custom_gradient
    def normalize(x: Tensor, scale: Tensor) -> tuple[Tensor, Any]:
        reciprocal = _reciprocal_deviation(x, scale, epsilon)

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            return _scale_gradients(upstream, x, reciprocal, scale)

        return x * reciprocal * scale, gradient

    return normalize


def _reciprocal_deviation(centred: Tensor, like: Tensor, epsilon: float) -> Tensor:
    return ops.rsqrt(_row_sums(ops.square(centred), _share(like)) + epsilon)


def _scale_gradients(
    upstream: Tensor, centred: Tensor, reciprocal: Tensor, gamma: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of `centred * reciprocal * gamma`: to `centred` and to `gamma`."""
    product = upstream * centred
    along = _row_sums(product, gamma * _share(gamma))
    dx = upstream * (reciprocal * gamma) - centred * (along * reciprocal**3)
    return dx, _column_sums(reciprocal, product)


def _share(like: Tensor) -> Tensor:
    """Return a row of 1 / D: a sum with these weights is a mean."""
    return ops.full_like(like, 1.0 / like.shape[-1])


def _row_sums(x: Tensor, weights: Tensor) -> Tensor:
    # (N, D), (1, D) -> (N, 1)
    if _sums_as_products():
        return ops.matmul(x, ops.transpose(weights))
    return ops.sum(x * weights, axis=-1, keepdims=True)


def _column_sums(weights: Tensor, x: Tensor) -> Tensor:
    # (N, 1), (N, D) -> (1, D)
    if _sums_as_products():
        return ops.matmul(ops.transpose(weights), x)
    return ops.sum(weights * x, axis=0, keepdims=True)


@functools.cache
def _sums_as_products() -> bool:
    return all(device.startswith("cpu") for device in keras.distribution.list_devices())
