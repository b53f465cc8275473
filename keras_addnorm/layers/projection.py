"""The linear map that every sublayer is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_addnorm.layers.shapes import leading_sizes

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class Projection(keras.layers.Dense):
    """A `keras.layers.Dense` that multiplies a flat list of tokens.

    The same weights, the same result and the same features (LoRA, quantisation); but a
    `(B, T, D)` input is multiplied as one `(B T, D)` matrix. TensorFlow without XLA multiplies a
    3-D tensor with a 2-D kernel about 1.6 times more slowly.
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Project the last axis.

        Args:
            inputs: `(..., D)`.
            training: Unused, as in `Dense`.

        Returns:
            `(..., units)`.
        """
        if len(inputs.shape) <= 2:
            return super().call(inputs, training=training)
        leading = leading_sizes(inputs, len(inputs.shape) - 1)
        # (..., D) -> (N, D) -> (N, units) -> (..., units)
        flat = ops.reshape(inputs, (-1, inputs.shape[-1]))
        return ops.reshape(super().call(flat, training=training), (*leading, self.units))

    def columns(self, units: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the projection on some of the units, as a function, for a loop.

        Args:
            units: Their numbers, `(M,)`.

        Returns:
            A function from `(N, D)` to `(N, M)`.
        """
        kernel = ops.take(ops.cast(self.kernel, self.compute_dtype), units, axis=1)
        bias = ops.take(ops.cast(self.bias, self.compute_dtype), units) if self.use_bias else 0.0
        return lambda x: ops.matmul(ops.cast(x, self.compute_dtype), kernel) + bias


def require_hidden_dim(shape: tuple[int | None, ...]) -> int:
    """Return the width of the residual stream, the last axis of `shape`."""
    if len(shape) < 2 or shape[-1] is None:
        raise ValueError(
            "The width of the residual stream has to be known when a layer is built. Expected "
            f"shape (batch, length, hidden_dim). Received: {tuple(shape)}"
        )
    return shape[-1]
