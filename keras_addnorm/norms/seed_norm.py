"""Self-rescaled dynamic normalisation (SeeDNorm): an RMS norm whose gain depends on its input."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.norms import kernels
from keras_addnorm.norms.norm import PositionWiseNorm, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_addnorm")
class SeedNorm(PositionWiseNorm):
    """`(gamma + tanh(<x, beta>) alpha) x / sqrt(mean(x^2) + epsilon)`.

    An RMS norm forgets how long its input was; here the gain sees it. At the start it is exactly
    `rms_norm`. Formula, slices and initial values are those of summaries of the paper and of two
    implementations by others, which agree; they were not verified in the paper itself, which is
    said to let weight decay act on `alpha` and `beta`.

    Args:
        num_heads: Number of equal slices of the channels, each with a product `<x, beta>` of its
            own. The paper needed several in image models.
        epsilon: Added to the mean square.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.

    Raises:
        ValueError: If `num_heads` is not positive, or does not divide the number of channels.

    Weights:
        `gamma`, `alpha` and `beta`, each `(D,)`, at ones, ones and zeros first.

    Reference:
        Cai et al., "SeeDNorm: Self-Rescaled Dynamic Normalization", 2025 (arXiv:2510.22777).
    """

    # A factor on the input changes the gain, and no weight or epsilon makes up for that.
    epsilon_power = None
    output_weights = ("gamma", "alpha")

    def __init__(self, num_heads: int = 1, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(epsilon=epsilon, **kwargs)
        if not is_whole(num_heads, 1):
            raise ArgumentError("SeeDNorm needs slices.", "`num_heads` >= 1", num_heads=num_heads)
        self.num_heads = num_heads

    def build(self, x_shape: Shape) -> None:
        """Make the weights for `(..., D)`."""
        width = self._width(x_shape)
        if width % self.num_heads:
            raise ArgumentError(
                "SeeDNorm cannot cut its input into equal slices.",
                f"`num_heads` to divide the width of {width}",
                num_heads=self.num_heads,
            )
        self.gamma = self._add_gain("gamma", (width,))
        self.alpha = self._add_gain("alpha", (width,))
        self.beta = self._add_offset("beta", (width,))

    def normalize(self, x: Tensor) -> Tensor:
        """Normalise each position."""
        x = ops.cast(x, self.statistics_dtype)
        ones = ops.ones(self.gamma.shape, dtype=self.statistics_dtype)
        normal = kernels.rms_normalize(x, ones, self.epsilon)
        return (self.gamma + self._sight(x * self.beta) * self.alpha) * normal

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "num_heads": self.num_heads}

    def _sight(self, products: Tensor) -> Tensor:
        """Return the tanh of the sum over each slice, (..., D) -> (..., D) or (..., 1)."""
        if self.num_heads == 1:
            return ops.tanh(ops.sum(products, axis=-1, keepdims=True))
        width = products.shape[-1]
        slices = ops.split(products, self.num_heads, axis=-1)
        sums = [ops.tanh(ops.sum(each, axis=-1, keepdims=True)) for each in slices]
        return ops.repeat(ops.concatenate(sums, axis=-1), width // self.num_heads, axis=-1)
