"""BHyT: a tanh of what an RMS norm gives, so that no number grows beyond its gain."""

from __future__ import annotations

import keras
from keras import ops

from keras_addnorm.norms import kernels
from keras_addnorm.norms.norm import PositionWiseNorm, Shape, Tensor

_BOUND = 10.0


@keras.saving.register_keras_serializable(package="keras_addnorm")
class BHyT(PositionWiseNorm):
    """`gamma tanh(lambda x / (10 sqrt(mean(x^2) + epsilon)))`.

    Bounded hyperbolic tanh: as `dynamic_tanh` it squashes each number, but what it squashes has
    been brought to one size before, so that it is not lost where the stream grows with depth. The
    10 says how many times the size of a row a number may be before the tanh bends.

    The paper also estimates the size of a layer's second input from that of its first, to save
    time. That needs two norms that know of each other, and is left out: here every norm measures
    its own input.

    Args:
        epsilon: Added to the mean square.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.

    Weights:
        `slope`, the scalar lambda, at 2 first; `gamma`, `(D,)`, at ones first.

    Example:
        >>> from keras_addnorm import norms
        >>> norms.get("bhyt")()(keras.ops.ones((2, 3, 5))).shape == (2, 3, 5)
        True

    Reference:
        "BHyT", 2026 (arXiv:2601.09719); the authors' code.
    """

    epsilon_power = 2
    output_weights = ("gamma",)

    def build(self, x_shape: Shape) -> None:
        """Make the weights for `(..., D)`."""
        self.slope = self._add_gain("slope", (), 2.0)
        self.gamma = self._add_gain("gamma", (self._width(x_shape),))

    def normalize(self, x: Tensor) -> Tensor:
        """Bring each position to one size, and squash each of its numbers."""
        x = ops.cast(x, self.statistics_dtype)
        slopes = ops.ones(self.gamma.shape, dtype=self.statistics_dtype) * (self.slope / _BOUND)
        return ops.tanh(kernels.rms_normalize(x, slopes, self.epsilon)) * self.gamma
