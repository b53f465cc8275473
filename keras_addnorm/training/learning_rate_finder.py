"""Learning rate range test: one short training with a rising rate."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import is_number, is_whole, to_path
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError

_SMOOTHING = 0.9
# The test ends when the loss exceeds the lowest one by this factor.
_TOO_HIGH = 2.0


@dataclass(frozen=True)
class LearningRateCurve:
    """Losses of a training whose rate rose from batch to batch.

    Attributes:
        rates: The rate of each batch.
        losses: The loss of each batch, smoothed over the last ten or so.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def suggestion(self) -> float:
        """A tenth of the rate with the lowest loss: high, with a reserve. A start, not a proof."""
        return self.rates[self.losses.index(min(self.losses))] / 10

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draws the loss over the rate.

        Args:
            path: The picture; renamed into place when whole.

        Returns:
            The path.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(self.rates, self.losses, color="#1f5fa8")
        axes.axvline(self.suggestion, color="#9aa5b1", linestyle="--")
        axes.annotate(f" {self.suggestion:.2g}", (self.suggestion, max(self.losses)))
        axes.set(xscale="log", xlabel="learning rate", ylabel="loss (smoothed)")
        with atomic_file(path) as temporary:
            figure.savefig(temporary, dpi=120, format="png")
        return to_path(path)


def find_learning_rate(
    model: keras.Model,
    dataset: Any,
    loss: Any,
    *,
    optimizer: Callable[..., keras.optimizers.Optimizer] = keras.optimizers.Adam,
    lowest: float = 1e-6,
    highest: float = 1.0,
    batches: int = 200,
    jit_compile: bool | str = "auto",
) -> LearningRateCurve:
    """Trains for some batches with a rate that rises from the lowest to the highest.

    It ends early once the loss has doubled. The model keeps the weights it came with, but has to
    be compiled anew.

    Args:
        model: A built model.
        dataset: Training batches, as `fit` takes them.
        loss: The loss, as `compile` takes it.
        optimizer: Called as `optimizer(learning_rate=...)`.
        lowest: Rate of the first batch.
        highest: Rate after the last batch.
        batches: How many batches are used; the data set is repeated if it has fewer.
        jit_compile: As `compile` takes it.

    Returns:
        Rates and losses.

    Raises:
        TypeError: If it is no Keras model.
        ValueError: If not 0 < `lowest` < `highest`, `batches` is below 1, the data set is empty, or
            the first loss is not finite.

    Example:
        >>> import keras, numpy as np
        >>> from keras_addnorm.training import find_learning_rate
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> x = np.ones((4, 2), "float32")
        >>> curve = find_learning_rate(model, (x, x[:, :1]), "mse", batches=20)
        >>> 1e-6 < curve.suggestion < 1
        True
    """
    if not is_number(lowest, above=0) or not is_number(highest, above=lowest):
        raise ArgumentError(
            "The rate rises from lowest to highest.",
            "0 < `lowest` < `highest`",
            lowest=lowest,
            highest=highest,
        )
    if not is_whole(batches, 1):
        raise ArgumentError(
            "The rate rises from batch to batch.", "an int of batches of at least 1", value=batches
        )
    if not isinstance(model, keras.Model):
        raise ArgumentTypeError(expected="a built Keras model", value=model)
    growth = (highest / lowest) ** (1 / batches)
    schedule = keras.optimizers.schedules.ExponentialDecay(lowest, 1, growth)
    weights = model.get_weights()
    recorder = _Recorder(lowest, growth, batches)
    model.compile(optimizer=optimizer(learning_rate=schedule), loss=loss, jit_compile=jit_compile)
    x, y = dataset if isinstance(dataset, tuple) else (dataset, None)
    try:
        while not recorder.is_done:
            before = recorder.seen
            model.fit(x, y, verbose=0, callbacks=[recorder], shuffle=False)
            if recorder.seen == before:
                raise ArgumentError("The data set has no batch.", "one or more", value=dataset)
    finally:
        model.set_weights(weights)
    if not recorder.losses:
        raise ValueError(
            "The very first loss is not finite. Expected a model and data that fit each other; "
            "look at the first batch and at the model's initial weights."
        )
    return LearningRateCurve(tuple(recorder.rates), tuple(recorder.losses))


class _Recorder(keras.callbacks.Callback):
    """Records the loss of each batch, and ends the test once the loss has risen too far."""

    def __init__(self, lowest: float, growth: float, batches: int) -> None:
        super().__init__()
        self.lowest, self.growth, self.batches = lowest, growth, batches
        self.seen = 0
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.is_done = False
        self._mean = 0.0

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self.seen += 1
        loss = float((logs or {})["loss"])
        self.model.reset_metrics()  # Else the loss would be the mean of all batches so far.
        if math.isfinite(loss):
            count = len(self.losses)
            self._mean = _SMOOTHING * self._mean + (1 - _SMOOTHING) * loss
            self.losses.append(self._mean / (1 - _SMOOTHING ** (count + 1)))
            self.rates.append(self.lowest * self.growth**count)
        self.is_done = (
            not math.isfinite(loss)
            or len(self.losses) >= self.batches
            or self.losses[-1] > _TOO_HIGH * min(self.losses)
        )
        if self.is_done:
            self.model.stop_training = True
