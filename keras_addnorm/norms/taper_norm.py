"""TaperNorm: an RMS norm that becomes a fixed gain while the model trains."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops
from keras.src.backend import get_keras_mask  # Keras offers no public way to read a tensor's mask.

from keras_addnorm.basics.argument_checks import is_whole, require_bool
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import as_mask, row_means
from keras_addnorm.norms import kernels
from keras_addnorm.norms.norm import Norm, Shape, Tensor

_MOST_STEPS = 1_000_000  # Their sum is a count that float32 holds exactly.
_MOMENTUM = 0.99


@keras.saving.register_keras_serializable(package="keras_addnorm")
class TaperNorm(Norm):
    """`g gamma x / r + (1 - g) gamma c x`, `r = sqrt(mean(x^2) + epsilon)`; g falls from 1 to 0.

    For `calibration_steps` batches of training it is `rms_norm`, and averages over batches find the
    number c with which `c x` comes nearest to `x / r`, in squares: `c = E[r] / E[r^2]`. Then c
    stays, and for `taper_steps` batches g falls along half a cosine. From then on the output is
    `gamma c x`: no position is measured any more, and `models.fold` leaves one gain a channel.

    Each batch counts that the norm is called on with `training=True`, except those that come again;
    the count is saved with the weights, so that a training that is resumed goes on with it. Padding
    is not measured. A layer with `trainable = False` counts nothing. The paper's abstract has the
    formula, the calibration by moving averages and the cosine; which averages, and the numbers of
    steps, are this library's choice, as is one c for all channels: gamma has the rest.

    Args:
        calibration_steps: How many batches it is an RMS norm for.
        taper_steps: In how many batches after them g falls.
        is_folded: Whether c stands in gamma, and nothing else is left: `gamma x`. `models.fold`
            sets it.
        epsilon: Added to the mean square.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.

    Raises:
        ValueError: If a number of steps is no whole number from 1 to a million.

    Weights:
        `gamma`, `(D,)`, at ones first; unless it is folded `step`, `mean_size` and `mean_square`,
        scalars at zeros that are not trained.

    Example:
        >>> from keras_addnorm import norms
        >>> norm = norms.get({"name": "taper_norm", "taper_steps": 500})()
        >>> norm(keras.ops.ones((2, 3, 5)), training=True).shape == (2, 3, 5)
        True

    Reference:
        "TaperNorm", 2026 (arXiv:2602.10408).
    """

    output_weights = ("gamma",)

    def __init__(
        self,
        calibration_steps: int = 1000,
        taper_steps: int = 10_000,
        is_folded: bool = False,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(epsilon=epsilon, **kwargs)
        require_bool(is_folded=is_folded)
        for name, steps in (("calibration_steps", calibration_steps), ("taper_steps", taper_steps)):
            if not is_whole(steps, 1, _MOST_STEPS):
                raise ArgumentError(
                    "TaperNorm counts batches.",
                    f"an int, 1 <= {name} <= {_MOST_STEPS}",
                    value=steps,
                )
        self.calibration_steps = calibration_steps
        self.taper_steps = taper_steps
        self.is_folded = is_folded

    @property
    def last_step(self) -> int:
        """The count from which on nothing is measured."""
        return self.calibration_steps + self.taper_steps

    @property
    def scale(self) -> Tensor:
        """The number c."""
        return self.mean_size / ops.maximum(self.mean_square, 1e-30)

    def build(self, x_shape: Shape) -> None:
        """Make the weights for `(..., D)`."""
        self.gamma = self._add_gain("gamma", (self._width(x_shape),))
        if not self.is_folded:
            self.step, self.mean_size, self.mean_square = (
                self._add_vector(name, (), keras.initializers.Zeros(), trainable=False)
                for name in ("step", "mean_size", "mean_square")
            )

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
        is_counted: bool = True,
    ) -> Tensor:
        """Normalise each position as far as the norm is still there.

        Args:
            x: `(..., D)`.
            padding_mask: `(...)`, True at real positions; `None` for the mask attached to `x`.
            training: Whether to count the batch, and to measure it while it is early.
            is_counted: Whether the batch has yet to be counted.

        Returns:
            A tensor of the shape and dtype of `x`.
        """
        padding_mask = get_keras_mask(x) if padding_mask is None else padding_mask
        x = ops.cast(x, self.statistics_dtype)
        if self.is_folded:
            return ops.cast(self.gamma * x, self.compute_dtype)
        share = self._share()
        normal = kernels.rms_normalize(x, self.gamma, self.epsilon)
        y = share * normal + (1 - share) * self.scale * (self.gamma * x)
        if training and self.trainable and is_counted:
            self._measure(ops.stop_gradient(x), padding_mask)
        return ops.cast(y, self.compute_dtype)

    def again(
        self, x: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Return what a call has returned, of a batch that has been counted."""
        return self(x, padding_mask=padding_mask, training=training, is_counted=False)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        own = ("calibration_steps", "taper_steps", "is_folded")
        return {**super().get_config(), **{name: getattr(self, name) for name in own}}

    def _share(self) -> Tensor:
        """Return g."""
        progress = ops.clip((self.step - self.calibration_steps) / self.taper_steps, 0.0, 1.0)
        return 0.5 * (1 + ops.cos(math.pi * progress))

    def _measure(self, x: Tensor, mask: Tensor | None) -> None:
        """Count a batch; if it is early, let the averages have the sizes of its positions."""
        squares = row_means(ops.square(x)) + self.epsilon
        weights = ops.ones_like(squares)
        if mask is not None:
            weights = ops.cast(ops.expand_dims(as_mask(mask), -1), x.dtype)
        count = ops.sum(weights)
        is_early = ops.logical_and(self.step < self.calibration_steps, count > 0)
        moved = ops.cast(is_early, x.dtype) * (1 - _MOMENTUM)
        for average, sizes in ((self.mean_size, ops.sqrt(squares)), (self.mean_square, squares)):
            found = ops.sum(weights * sizes) / ops.maximum(count, 1.0)
            average.assign(average + moved * (found - average))
        self.step.assign(ops.minimum(self.step + 1, self.last_step))
