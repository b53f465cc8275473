"""Root mean square normalisation."""

from __future__ import annotations

import keras

from keras_addnorm.norms import kernels
from keras_addnorm.norms.norm import PositionWiseNorm, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_addnorm")
class RMSNorm(PositionWiseNorm):
    """`scale x / sqrt(mean(x^2) + epsilon)`.

    Layer normalisation without the centring and without the offset.

    Args:
        epsilon: Added to the mean square.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.

    Weights:
        `scale`, `(D,)`, at ones first.

    Reference:
        Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019 (arXiv:1910.07467).
    """

    epsilon_power = 2
    output_weights = ("scale",)

    def build(self, x_shape: Shape) -> None:
        """Make the weight for `(..., D)`."""
        self.scale = self._add_gain("scale", (self._width(x_shape),))

    def normalize(self, x: Tensor) -> Tensor:
        """Normalise each position."""
        return kernels.rms_normalize(x, self.scale, self.epsilon)
