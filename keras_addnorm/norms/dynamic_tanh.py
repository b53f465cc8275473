"""Dynamic tanh (DyT): a tanh with a learned scale in place of a normalisation."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import require_finite
from keras_addnorm.norms.norm import PositionWiseNorm, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_addnorm")
class DynamicTanh(PositionWiseNorm):
    """`gamma tanh(alpha x) + beta`.

    Squashes large values as a norm does, but each number by itself.

    Args:
        initial_alpha: Value that `alpha` starts at.
        epsilon: Without effect: nothing is divided.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.

    Weights:
        `alpha`, a scalar; `gamma` and `beta`, each `(D,)`, at ones and zeros first.

    Reference:
        Zhu et al., "Transformers without Normalization", 2025 (arXiv:2503.10622), section 4.
    """

    epsilon_power = 0
    output_weights = ("gamma", "beta")

    def __init__(self, initial_alpha: float = 0.5, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(epsilon=epsilon, **kwargs)
        require_finite("Dynamic tanh learns a factor.", initial_alpha=initial_alpha)
        self.initial_alpha = initial_alpha

    def build(self, x_shape: Shape) -> None:
        """Make the weights for `(..., D)`."""
        self.alpha = self._add_gain("alpha", (), self.initial_alpha)
        self.gamma = self._add_gain("gamma", (self._width(x_shape),))
        self.beta = self._add_offset("beta", (self._width(x_shape),))

    def normalize(self, x: Tensor) -> Tensor:
        """Squash each number."""
        x = ops.cast(x, self.statistics_dtype)
        return ops.tanh(self.alpha * x) * self.gamma + self.beta

    def absorb_input_gain(self, gain: float) -> None:
        """Multiply `alpha` by `gain`."""
        self.alpha.assign(self.alpha * gain)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "initial_alpha": self.initial_alpha}
