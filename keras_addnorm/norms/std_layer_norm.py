"""Layer normalisation by the unbiased standard deviation, as in the Annotated Transformer."""

from __future__ import annotations

import keras
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.norms.norm import PositionWiseNorm, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_addnorm")
class StdLayerNorm(PositionWiseNorm):
    """`gamma (x - mean(x)) / (std(x) + epsilon) + beta`.

    The standard deviation is the unbiased one (divided by D - 1), and `epsilon` stands outside the
    root. Names and shapes of the weights are those of `LayerNorm`, so that either loads the
    other's; the outputs differ by a factor of about `sqrt(1 - 1 / D)`.

    Args:
        epsilon: Added to the standard deviation.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.

    Raises:
        ValueError: If there is one channel only, which has no unbiased deviation.

    Weights:
        `gamma` and `beta`, each `(D,)`, at ones and zeros first.

    Reference:
        Rush, "The Annotated Transformer", 2018, class `LayerNorm`.
    """

    epsilon_power = 1
    output_weights = ("gamma", "beta")

    def build(self, x_shape: Shape) -> None:
        """Make the weights for `(..., D)`."""
        if self._width(x_shape) == 1:
            raise ArgumentError(
                "One number has no unbiased standard deviation.",
                "at least 2 channels",
                "Use norm='layer_norm' or more channels.",
                received=f"shape: {tuple(x_shape)}",
            )
        self.gamma = self._add_gain("gamma", (self._width(x_shape),))
        self.beta = self._add_offset("beta", (self._width(x_shape),))

    def normalize(self, x: Tensor) -> Tensor:
        """Normalise each position."""
        x = ops.cast(x, self.statistics_dtype)
        centred = x - ops.sum(x, axis=-1, keepdims=True) / x.shape[-1]
        total = ops.sum(ops.square(centred), axis=-1, keepdims=True)
        # The root is not differentiable at 0: constant rows take another branch, of gradient 0.
        is_constant = ops.equal(total, 0)
        deviation = ops.sqrt(ops.where(is_constant, 1, total) / (x.shape[-1] - 1))
        deviation = ops.where(is_constant, 0, deviation)
        return centred / (deviation + self.epsilon) * self.gamma + self.beta
