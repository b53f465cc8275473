"""Learning-rate schedules: a linear warm-up, then the inverse square root of the step.

Step numbering, for all: the argument is the number of updates already made, which is what Keras
passes (`optimizer.iterations`, 0 for the very first update), and it goes into the formula as it
is. The first update of a run therefore has rate 0 and only starts the optimizer's moments; the
peak is reached after exactly `warmup_steps` updates.
"""

import math
import operator
from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError


def _warmup_then_inverse_square_root(step: Any, warmup_steps: int) -> Any:
    """min(step / warmup, sqrt(warmup / step)): 1 at its peak, finite at step 0."""
    step = ops.cast(step, "float32")
    warmup = float(warmup_steps)
    return ops.minimum(step / warmup, ops.sqrt(warmup / ops.maximum(step, warmup)))


def _positive_int(value: Any, name: str, hint: str) -> int:
    """The value as a plain int of at least 1."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1:
        raise ArgumentError(f"{name} must be an integer of at least 1.", remedy=hint, value=value)
    return number


def _positive_float(value: Any, name: str, hint: str) -> float:
    """The value as a plain finite float above 0."""
    if not is_number(value, above=0):
        raise ArgumentError(
            f"{name} must be a number above 0, finite in float32.", remedy=hint, value=value
        )
    return float(value)


_WARMUP_HINT = "For no warm-up at all, pass 1: the rate then falls from the first step on."


@keras.saving.register_keras_serializable(package="keras_addnorm")
class InverseSquareRootSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0 to a peak, then falls with the inverse square root of the step.

    ::

        rate(step) = peak · step / warmup_steps           for step ≤ warmup_steps
                   = peak · sqrt(warmup_steps / step)     after

    `step` is the number of updates already made (Keras passes 0 for the first update).

    Args:
        peak_learning_rate: The highest rate, reached at `step == warmup_steps`.
        warmup_steps: Updates until the peak, at least 1.

    Raises:
        ValueError: If the peak is not a finite number above 0 or the warm-up is not an integer of
            at least 1.

    Example:
        >>> from keras_addnorm.training import InverseSquareRootSchedule
        >>> schedule = InverseSquareRootSchedule(peak_learning_rate=0.004, warmup_steps=1000)
        >>> [round(float(schedule(step)), 6) for step in (0, 500, 1000, 4000)]
        [0.0, 0.002, 0.004, 0.002]

    Reference:
        fairseq's `inverse_sqrt` schedule, with an initial warm-up rate of 0.
    """

    def __init__(self, peak_learning_rate: float, warmup_steps: int) -> None:
        self.peak_learning_rate = _positive_float(
            peak_learning_rate, "peak_learning_rate", "Between 0.0005 and 0.005 is usual."
        )
        self.warmup_steps = _positive_int(warmup_steps, "warmup_steps", _WARMUP_HINT)

    def __call__(self, step: Any) -> Any:
        """The rate, a float32 scalar."""
        return self.peak_learning_rate * _warmup_then_inverse_square_root(step, self.warmup_steps)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "warmup_steps": self.warmup_steps,
        }


@keras.saving.register_keras_serializable(package="keras_addnorm")
class NoamSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The schedule of the original Transformer.

    ::

        rate(step) = factor · hidden_dim^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)

    It is an `InverseSquareRootSchedule` with the peak factor / sqrt(hidden_dim · warmup_steps).
    `step` is the number of updates already made (Keras passes 0 for the first update, whose rate
    is 0).

    Args:
        hidden_dim: Width of the model (the paper's d_model).
        warmup_steps: Updates until the peak, at least 1.
        factor: Multiplies the whole schedule; 1 in the paper.

    Raises:
        ValueError: If the width or the warm-up is not an integer of at least 1, or the factor is
            not a finite number above 0.

    Example:
        >>> from keras_addnorm.training import NoamSchedule
        >>> schedule = NoamSchedule(hidden_dim=512, warmup_steps=4000)
        >>> [round(float(schedule(step)), 7) for step in (0, 4000, 16000)]
        [0.0, 0.0006988, 0.0003494]

    Reference:
        Vaswani et al., Attention Is All You Need (2017), equation 3.
    """

    def __init__(self, hidden_dim: int, warmup_steps: int = 4000, factor: float = 1.0) -> None:
        self.hidden_dim = _positive_int(hidden_dim, "hidden_dim", "It is the width of the model.")
        self.warmup_steps = _positive_int(warmup_steps, "warmup_steps", _WARMUP_HINT)
        self.factor = _positive_float(factor, "factor", "The paper has 1.")

    def __call__(self, step: Any) -> Any:
        """The rate, a float32 scalar."""
        peak = self.factor / math.sqrt(self.hidden_dim * self.warmup_steps)
        return peak * _warmup_then_inverse_square_root(step, self.warmup_steps)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "factor": self.factor,
        }


def _checked_schedule(schedule: Any) -> Any:
    """The schedule, if it is one: anything that gives the rate of a step."""
    if not callable(schedule):
        raise ArgumentError(
            "The rates of a schedule are changed.", "a LearningRateSchedule", value=schedule
        )
    return schedule


class _ScheduleOfASchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Changes the rates of another schedule, which is saved with it."""

    schedule: keras.optimizers.schedules.LearningRateSchedule

    def get_config(self) -> dict[str, Any]:
        """The inner schedule."""
        return {"schedule": keras.saving.serialize_keras_object(self.schedule)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "_ScheduleOfASchedule":
        """Rebuilds it, the inner schedule included."""
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(**{**config, "schedule": schedule})


@keras.saving.register_keras_serializable(package="keras_addnorm")
class Cooldown(_ScheduleOfASchedule):
    """Lets the rate of a schedule fall to 0 over the last updates of a training.

    ::

        rate(step) = schedule(step) · min(1, (total_steps - step) / cooldown_steps)

    and 0 from `total_steps` on. What is trained before the cool-down does not depend on when it
    comes: the same training can be made longer from there.

    Args:
        schedule: The schedule.
        total_steps: Updates of the whole training.
        cooldown_steps: How many of them, the last ones, the fall takes.

    Raises:
        ValueError: If there is no schedule, a number is not an integer of at least 1, or the fall
            would be longer than the training.

    Example:
        >>> from keras_addnorm.training import Cooldown, InverseSquareRootSchedule
        >>> schedule = Cooldown(InverseSquareRootSchedule(0.5, warmup_steps=1), 16, 8)
        >>> [round(float(schedule(step)), 4) for step in (1, 4, 9, 15, 16)]
        [0.5, 0.25, 0.1458, 0.0161, 0.0]

    Reference:
        Hägele et al., Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations
        (2024), where a constant rate falls like this.
    """

    def __init__(
        self,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        total_steps: int,
        cooldown_steps: int,
    ) -> None:
        hint = "Both count updates."
        self.schedule = _checked_schedule(schedule)
        self.total_steps = _positive_int(total_steps, "total_steps", hint)
        self.cooldown_steps = _positive_int(cooldown_steps, "cooldown_steps", hint)
        if self.cooldown_steps > self.total_steps:
            raise ArgumentError(
                "A cool-down is a part of the training.",
                f"`cooldown_steps` of at most `total_steps` = {total_steps}",
                cooldown_steps=cooldown_steps,
            )

    def __call__(self, step: Any) -> Any:
        """The rate, a float32 scalar."""
        left = float(self.total_steps) - ops.cast(step, "float32")
        return self.schedule(step) * ops.clip(left / float(self.cooldown_steps), 0.0, 1.0)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "total_steps": self.total_steps,
            "cooldown_steps": self.cooldown_steps,
        }


@keras.saving.register_keras_serializable(package="keras_addnorm")
class ScheduleOfUpdates(_ScheduleOfASchedule):
    """A schedule that counts updates where Keras counts batches.

    With `gradient_accumulation_steps=k` Keras asks for the rate of each batch: rate(b) is here
    schedule(⌊b / k⌋), so that a warm-up of 1,000 means as many updates as without accumulation.

    Args:
        schedule: The schedule, by updates.
        batches_per_update: The optimiser's `gradient_accumulation_steps`.

    Raises:
        ValueError: If there is no schedule, or `batches_per_update` is not an integer of at least
            1.

    Example:
        >>> from keras_addnorm.training import InverseSquareRootSchedule, ScheduleOfUpdates
        >>> schedule = ScheduleOfUpdates(InverseSquareRootSchedule(0.5, warmup_steps=2), 3)
        >>> [float(schedule(batch)) for batch in (0, 2, 3, 5, 6)]
        [0.0, 0.0, 0.25, 0.25, 0.5]
    """

    def __init__(
        self,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        batches_per_update: int,
    ) -> None:
        self.schedule = _checked_schedule(schedule)
        self.batches_per_update = _positive_int(
            batches_per_update, "batches_per_update", "It is the number of batches of an update."
        )

    def __call__(self, step: Any) -> Any:
        """The rate, a float32 scalar."""
        step, number = ops.cast(step, "int32"), ops.cast(self.batches_per_update, "int32")
        return self.schedule(ops.floor_divide(step, number))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "batches_per_update": self.batches_per_update}
