"""Layer normalisation."""

from __future__ import annotations

import keras

from keras_addnorm.norms import kernels
from keras_addnorm.norms.norm import PositionWiseNorm, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_addnorm")
class LayerNorm(PositionWiseNorm):
    """`gamma (x - mean(x)) / sqrt(variance(x) + epsilon) + beta`.

    Mean and variance (the mean square deviation) are those of the D numbers at one position.

    Args:
        epsilon: Added to the variance.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.

    Weights:
        `gamma` and `beta`, each `(D,)`, at ones and zeros first.

    Reference:
        Ba et al., "Layer Normalization", 2016 (arXiv:1607.06450).
    """

    epsilon_power = 2
    output_weights = ("gamma", "beta")

    def build(self, x_shape: Shape) -> None:
        """Make the weights for `(..., D)`."""
        self.gamma = self._add_gain("gamma", (self._width(x_shape),))
        self.beta = self._add_offset("beta", (self._width(x_shape),))

    def normalize(self, x: Tensor) -> Tensor:
        """Normalise each position."""
        return kernels.layer_normalize(x, self.gamma, self.beta, self.epsilon)
