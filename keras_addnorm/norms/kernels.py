"""Layer and RMS normalisation with hand-written gradients.

With automatic differentiation, a norm keeps several arrays of the size of its input and passes over
memory once for each step of the chain rule. Here the backward pass keeps one array and one number
for each row. For a row `x` with `c = x - mean(x)` (RMS: `c = x`),
`r = 1 / sqrt(mean(c^2) + epsilon)`, `n = r c` and the incoming gradient `g`::

    y       = gamma n + beta
    dgamma  = sum over rows of g n            dbeta = sum over rows of g
    dx      = r (gamma g - mean(gamma g) - n mean(gamma g n))         (RMS: no second term)

The array that is kept is `n`; or `x`, where `x` has 16 bits and `n` would have 32: the backward
pass then computes `n` again.

On processors, sums over a row are matrix products with a vector (`basics/tensors.py` has the
reasons), and so are sums down the columns of each matrix in a stack. But the columns of a single
matrix are summed plainly, because XLA makes a loop of that product that strides through memory, ten
times as slow. On torch, Keras calls torch's own kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import ops

from keras_addnorm.basics.tensors import row_means, row_sums, sums_are_products
from keras_addnorm.norms.norm import Tensor

Gradient = Callable[[Tensor], tuple[Tensor, ...]]
NormWithGradient = Callable[..., tuple[Tensor, Gradient]]


def layer_normalize(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Return `gamma (x - mean) / sqrt(variance + epsilon) + beta` over the last axis.

    Args:
        x: `(..., D)`.
        gamma: `(D,)`, float32 or float64: the dtype of the computation.
        beta: `(D,)`, of the same dtype.
        epsilon: Added to the variance.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    if _backend_has_kernels(gamma):
        wide = ops.cast(x, gamma.dtype)
        y = ops.layer_normalization(wide, gamma, beta, axis=-1, epsilon=epsilon)
        return ops.cast(y, x.dtype)
    return _with_gradient(_layer_normalizer(epsilon), x, gamma, beta)


def rms_normalize(x: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    """Return `scale x / sqrt(mean(x^2) + epsilon)` over the last axis.

    Args:
        x: `(..., D)`.
        scale: `(D,)`, float32 or float64: the dtype of the computation.
        epsilon: Added to the mean square.

    Returns:
        A tensor of the shape and dtype of `x`.
    """
    if _backend_has_kernels(scale):
        y = ops.rms_normalization(ops.cast(x, scale.dtype), scale, axis=-1, epsilon=epsilon)
        return ops.cast(y, x.dtype)
    return _with_gradient(_rms_normalizer(epsilon), x, scale)


def _backend_has_kernels(weight: Tensor) -> bool:
    # Keras hands float64 to torch's kernels rounded to float32.
    return keras.backend.backend() == "torch" and ops.dtype(weight) == "float32"


def _differentiates_twice() -> bool:
    """Return whether a custom gradient can itself be differentiated."""
    return keras.backend.backend() in ("tensorflow", "jax")


def _with_gradient(normalize: NormWithGradient, x: Tensor, *weights: Tensor) -> Tensor:
    """Call a function of `x` and weights that returns its gradient, too."""
    first, *middle, last = x.shape
    if first is None and middle and None not in middle:
        rows = ops.reshape(x, (-1, last))
        return ops.reshape(_with_gradient(normalize, rows, *weights), (-1, *middle, last))
    # TensorFlow requires that variables are read outside of a function with a custom gradient.
    read = [ops.copy(weight) for weight in weights]
    if _differentiates_twice():
        return ops.custom_gradient(normalize)(x, *read)
    y, _ = normalize(x, *read)
    return y


def _layer_normalizer(epsilon: float) -> NormWithGradient:
    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Gradient]:
        mean = row_means(ops.cast(x, gamma.dtype))
        y, reciprocal, normal = _divided_by_deviation(x, mean, gamma, epsilon)

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            upstream = ops.cast(upstream, gamma.dtype)
            scaled = upstream * gamma - row_sums(upstream, _shares(gamma))
            dx, dgamma = _gradients(upstream, scaled, normal(), reciprocal, gamma)
            return ops.cast(dx, x.dtype), dgamma, _column_sums(upstream)

        return ops.cast(y * gamma + beta, x.dtype), gradient

    return normalize


def _rms_normalizer(epsilon: float) -> NormWithGradient:
    def normalize(x: Tensor, scale: Tensor) -> tuple[Tensor, Gradient]:
        y, reciprocal, normal = _divided_by_deviation(x, None, scale, epsilon)

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            upstream = ops.cast(upstream, scale.dtype)
            dx, dscale = _gradients(upstream, upstream * scale, normal(), reciprocal, scale)
            return ops.cast(dx, x.dtype), dscale

        return ops.cast(y * scale, x.dtype), gradient

    return normalize


def _divided_by_deviation(
    x: Tensor, mean: Tensor | None, like: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
    """Return n, r, and a function that returns n for the gradient: kept, or computed again."""

    def centred() -> Tensor:
        wide = ops.cast(x, like.dtype)
        return wide if mean is None else wide - mean

    c = centred()
    reciprocal = ops.rsqrt(row_means(ops.square(c)) + epsilon)
    normal = c * reciprocal
    is_narrow = ops.dtype(x) != ops.dtype(like)
    return normal, reciprocal, lambda: centred() * reciprocal if is_narrow else normal


def _gradients(
    upstream: Tensor, scaled: Tensor, normal: Tensor, reciprocal: Tensor, gamma: Tensor
) -> tuple[Tensor, Tensor]:
    """Return dx and dgamma; `scaled` is `gamma g`, less its mean where the norm has one."""
    product = upstream * normal
    along = row_sums(product, _shares(gamma))
    return (scaled - normal * along) * reciprocal, _column_sums(product)


def _shares(gamma: Tensor) -> Tensor:
    """Return gamma / D: a sum with these weights is a mean of gamma's products."""
    return gamma * (1.0 / gamma.shape[-1])


def _column_sums(x: Tensor) -> Tensor:
    # (..., D) -> (D,)
    rank = len(x.shape)
    if sums_are_products() and rank > 2:
        ones = ops.ones_like(x[..., :1])
        x = ops.matmul(ops.swapaxes(ones, -1, -2), x)
    return ops.sum(x, axis=tuple(range(rank - 1)))
