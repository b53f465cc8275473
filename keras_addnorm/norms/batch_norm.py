"""Batch normalisation over batch and time, for encoders."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops
from keras.src.backend import get_keras_mask  # Keras offers no public way to read a tensor's mask.

from keras_addnorm.basics.argument_checks import require_share
from keras_addnorm.basics.arguments import OtherOrder, by_name
from keras_addnorm.basics.tensors import as_mask
from keras_addnorm.norms.norm import Norm, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_addnorm")
class BatchNorm(Norm):
    """`gamma (x - mean) / sqrt(variance + epsilon) + beta`, with one mean a channel.

    While training, mean and variance are those of all positions of the batch that the mask lets
    count; padding changes nothing. Otherwise they are the moving averages, which training updates:
    `moving = momentum moving + (1 - momentum) batch`. A batch without any real position leaves
    them alone; so does a layer with `trainable = False`, which always uses them.

    What comes out at one position depends on all others while training. In a decoder that would
    show each position the tokens it has to predict: encoders only. Under `tf.distribute` each
    replica uses the statistics of its own share.

    Args:
        momentum: Share of the moving averages that stays at each step.
        epsilon: Added to the variance.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.

    Weights:
        `gamma` and `beta`, `(D,)`, at ones and zeros first; `moving_mean` and `moving_variance`,
        `(D,)`, not trained.

    Reference:
        Ioffe and Szegedy, "Batch Normalization", 2015 (arXiv:1502.03167).
    """

    mixes_positions = True
    epsilon_power = 2
    output_weights = ("gamma", "beta")

    @by_name(OtherOrder("Keras' BatchNormalization", ()))
    def __init__(self, *, momentum: float = 0.99, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(epsilon=epsilon, **kwargs)
        require_share(momentum=momentum)
        self.momentum = momentum

    def build(self, x_shape: Shape) -> None:
        """Make the weights for `(..., D)`."""
        shape = (self._width(x_shape),)
        self.gamma = self._add_gain("gamma", shape)
        self.beta = self._add_offset("beta", shape)
        zeros, ones = keras.initializers.Zeros(), keras.initializers.Ones()
        self.moving_mean = self._add_vector("moving_mean", shape, zeros, trainable=False)
        self.moving_variance = self._add_vector("moving_variance", shape, ones, trainable=False)

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
        is_counted: bool = True,
    ) -> Tensor:
        """Normalise each channel.

        Args:
            x: `(..., D)`.
            padding_mask: `(...)`, True at real positions; `None` for the mask attached to `x`.
            training: Whether to use the statistics of this batch and to update the averages.
            is_counted: Whether the averages have yet to count this batch.

        Returns:
            A tensor of the shape and dtype of `x`.
        """
        padding_mask = get_keras_mask(x) if padding_mask is None else padding_mask
        x = ops.cast(x, self.statistics_dtype)
        if training and self.trainable:
            mean, variance, count = _moments(x, padding_mask)
            if is_counted:
                self._update_averages(mean, variance, count)
        else:
            mean, variance = self.moving_mean, self.moving_variance
        y = (x - mean) * (ops.rsqrt(variance + self.epsilon) * self.gamma) + self.beta
        return ops.cast(y, self.compute_dtype)

    def again(
        self, x: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Return what a call has returned, without another step of the averages."""
        return self(x, padding_mask=padding_mask, training=training, is_counted=False)

    def absorb_input_gain(self, gain: float) -> None:
        """Divide the moving averages: the mean by `gain`, the variance by its square."""
        self.moving_mean.assign(self.moving_mean / gain)
        self.moving_variance.assign(self.moving_variance / gain**2)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "momentum": self.momentum}

    def _update_averages(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        step = ops.where(count > 0, 1.0 - self.momentum, 0.0)
        for average, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
            average.assign(average + ops.cast(step, value.dtype) * (value - average))


def _moments(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, variance and number of the positions that count."""
    axes = tuple(range(len(x.shape) - 1))
    if mask is None:
        weights = ops.ones_like(x[..., :1])
    else:
        weights = ops.cast(ops.expand_dims(as_mask(mask), -1), x.dtype)
    count = ops.sum(weights)
    divisor = ops.where(count > 0, count, ops.ones_like(count))
    mean = ops.sum(weights * x, axis=axes) / divisor
    variance = ops.sum(weights * ops.square(x - mean), axis=axes) / divisor
    return mean, variance, count
