"""ScaleNorm: L2 normalisation to one learned length."""

from __future__ import annotations

import keras
from keras import ops

from keras_addnorm.norms.norm import PositionWiseNorm, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_addnorm")
class ScaleNorm(PositionWiseNorm):
    """`g x / max(||x||, epsilon)`.

    Each position is put on a sphere whose radius is learned.

    Args:
        epsilon: The least length that is divided by.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.

    Weights:
        `scale`: the radius `g`, a scalar, at `sqrt(D)` first.

    Reference:
        Nguyen and Salazar, "Transformers without Tears", 2019 (arXiv:1910.05895), section 2.2.
    """

    epsilon_power = 1
    output_weights = ("scale",)

    def build(self, x_shape: Shape) -> None:
        """Make the scalar weight for `(..., D)`."""
        self.scale = self._add_gain("scale", (), self._width(x_shape) ** 0.5)

    def normalize(self, x: Tensor) -> Tensor:
        """Normalise each position."""
        x = ops.cast(x, self.statistics_dtype)
        # The least length stands under the root, so that the gradient at x = 0 is finite.
        square = ops.sum(ops.square(x), axis=-1, keepdims=True)
        square = ops.where(square > self.epsilon**2, square, ops.full_like(square, self.epsilon**2))
        return x * (ops.rsqrt(square) * self.scale)
