"""Callbacks that record a run: its log, its curves, its best epochs and its averaged weights."""

from __future__ import annotations

import math
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from keras_addnorm.basics.argument_checks import require_finite
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.terminal import duration
from keras_addnorm.runs.updates import Course
from keras_addnorm.runs.weight_files import save_best_weights, save_weights
from keras_addnorm.training import plot_curves
from keras_addnorm.training.resume import TrainingPosition

# As many as a training compiles, or a few more.
_FEW_BATCHES = 10
# Drawing takes seconds, which a small data set has epochs of.
_SECONDS_BETWEEN_CURVES = 30.0


def typical_seconds(batches: Sequence[float]) -> float:
    """Returns the mean seconds of a batch, without those ten times as long, which were compiled."""
    limit = 10 * statistics.median(batches) if batches else 0.0
    usual = [seconds for seconds in batches if seconds <= limit]
    return statistics.fmean(usual) if usual else 0.0


def peak_memory_mebibytes() -> float:
    """Returns the most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024.0**2 if sys.platform == "darwin" else 1024.0)


class RunRecorder(keras.callbacks.Callback):
    """Writes best weights, log and curves at the end of each epoch.

    Unlike `CSVLogger` and `ModelCheckpoint` it never leaves half a file behind, and on resuming it
    drops rows that are younger than the checkpoint. A run may thus be killed at any moment. Curves
    are drawn at most every 30 seconds; `draw_curves` draws what is left at the end.

    Columns it adds to the log: `seconds` (the whole epoch, validation included, files that are
    written at its end not),
    `examples_per_second`, `tokens_per_second` (source and target tokens without padding), `padding`
    (its share of the label positions) and `peak_memory_mib`.

    Args:
        directory: Where to write.
        report: What an epoch holds.
        first_epoch: The epoch that the training goes on with.
        best: Which epochs' weights are kept.
        course: How long the training is. Where an epoch is a number of updates, the log says after
            how many `updates` a row was written, and speeds are those of the mean batch.
    """

    def __init__(
        self,
        directory: RunDirectory,
        report: PipelineReport,
        first_epoch: int,
        best: BestEpochs,
        course: Course,
    ) -> None:
        super().__init__()
        self.directory = directory
        self.report = report
        self.course = course
        self.best = best
        self.rows = [row for row in directory.read_log() if row["epoch"] < first_epoch]
        self._started: float | None = None
        self._before = 0.0
        self._batches: list[float] = []
        self._validation_batches: list[float] = []
        self._lap = 0.0
        self._laps: list[float] = []
        self._drawn = -math.inf
        self._is_drawn = True

    def memory(self) -> dict[str, float]:
        """Returns the seconds of the epoch so far, for a checkpoint inside of it; else 0."""
        started = self._started
        return {"epoch_seconds": 0.0 if started is None else time.perf_counter() - started}

    def remember(self, memory: Mapping[str, float]) -> None:
        """Lets the next epoch go on counting its seconds from those of the checkpoint."""
        # Older checkpoints have `seconds`, which also counts the last epoch between two epochs.
        seconds = memory.get("epoch_seconds", 0.0)
        require_finite("A checkpoint says how long its epoch took.", epoch_seconds=seconds)
        self._before = seconds

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the clock."""
        now = time.perf_counter()
        self._started = now - self._before
        if not self._laps:
            self._lap = self._started
        self._before = 0.0
        self._batches, self._validation_batches = [], []

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the clock of a batch."""
        self._batches.append(-time.perf_counter())

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Stops the clock of a batch."""
        self._batches[-1] += time.perf_counter()

    def on_test_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the clock of a batch of the validation."""
        self._validation_batches.append(-time.perf_counter())

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Stops the clock of a batch of the validation."""
        self._validation_batches[-1] += time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the epoch's row of the log, the curves, and the weights if it is a best epoch."""
        seconds = self.memory()["epoch_seconds"]
        self._started = None
        share = self.course.batches / self.report.batches
        tokens = share * (self.report.source_tokens + self.report.target_tokens)
        updates = {"updates": self.course.updates_after(epoch + 1)}
        row = {
            "epoch": epoch,
            **(updates if self.course.counts_updates else {}),
            **{key: float(value) for key, value in (logs or {}).items()},
            "seconds": round(seconds, 3),
            "examples_per_second": round(share * self.report.kept / seconds, 1),
            "tokens_per_second": round(tokens / seconds, 1),
            "padding": round(self.report.padding, 4),
            "peak_memory_mib": round(peak_memory_mebibytes(), 1),
        }
        self.rows.append(row)
        self.best.keep(self.model, self.directory, self.rows)
        self.directory.write_log(self.rows)
        self._is_drawn = False
        if time.perf_counter() - self._drawn >= _SECONDS_BETWEEN_CURVES:
            self.draw_curves()
        now = time.perf_counter()
        self._laps.append(now - self._lap)
        self._lap = now

    def draw_curves(self) -> None:
        """Draws the curves if the log has a row that they do not show."""
        if self._is_drawn:
            return
        plot_curves(self.directory.log, self.directory.curves)
        self._is_drawn, self._drawn = True, time.perf_counter()

    def seconds_an_epoch(self) -> float | None:
        """Returns how long an epoch takes with all that is written, or None if it is not known yet.

        A process compiles in its first epoch. Of many batches, those that were compiled stand out;
        of few, the next epoch has to show how long one takes.
        """
        if len(self._laps) != 1:
            return statistics.fmean(self._laps[1:][-3:]) if self._laps else None
        if len(self._batches) < _FEW_BATCHES:
            return None
        # A batch of the validation takes no longer than one of the training.
        usual = typical_seconds(self._batches)
        compiling = sum(
            max(0.0, sum(batches) - usual * len(batches))
            for batches in (self._batches, self._validation_batches)
        )
        return max(0.0, self._laps[0] - compiling)


class ProgressLines(keras.callbacks.Callback):
    """Says within an epoch how far it is, for trainings whose output goes to a file.

    Args:
        say: Takes the lines.
        position: Knows where the training is.
        course: How many epochs there are to be.
        seconds: How often.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        position: TrainingPosition,
        course: Course,
        seconds: float = 60.0,
    ) -> None:
        super().__init__()
        self.say = say
        self.position = position
        self.course = course
        self.seconds = seconds
        self._said = self._last = 0.0
        self._batches: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the clock."""
        self._said = self._last = time.monotonic()
        self._batches = []

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Says a line if it is time."""
        now, done = time.monotonic(), self.position.batch
        self._batches.append(now - self._last)
        self._last = now
        if now - self._said < self.seconds:
            return
        self._said = now
        total = self.position.batches_per_epoch
        left = duration(typical_seconds(self._batches) * (total - done))
        # Of few batches, most of the time went into compiling them.
        is_known = len(self._batches) >= _FEW_BATCHES
        loss = f", loss {float(logs['loss']):.4f}" if logs and "loss" in logs else ""
        epoch = self.course.name(self.position.epoch + 1).capitalize()
        self.say(
            f"{epoch}: {done:,} of {total:,} batches"
            f"{loss}; {f'{left} left of it' if is_known else 'compiling'}."
        )


@dataclass(frozen=True)
class BestEpochs:
    """Keeps the weights of the best epochs.

    A value that is not a number never wins, and of two equal ones the earlier.

    Attributes:
        metric: The column of the log that decides.
        high: Whether a high value is good.
        count: How many are kept.
    """

    metric: str = "val_perplexity"
    high: bool = False
    count: int = 1

    def epochs(self, rows: Sequence[Mapping[str, float]]) -> list[int]:
        """Returns the best epochs of a log, the best first."""
        scored = [row for row in rows if math.isfinite(row.get(self.metric, math.nan))]
        scored.sort(key=lambda row: row[self.metric], reverse=self.high)  # Stable: earlier first.
        return [int(row["epoch"]) for row in scored[: self.count]]

    def keep(
        self, model: keras.Model, directory: RunDirectory, rows: Sequence[Mapping[str, float]]
    ) -> None:
        """Saves the epoch that has just ended if it is among the best; drops what it beat."""
        now, best = int(rows[-1]["epoch"]), self.epochs(rows)
        if now in best[:1]:
            save_best_weights(model, directory)
        if self.count == 1:
            return
        names = {epoch: f"epoch-{epoch + 1:04d}.weights.h5" for epoch in best}
        if now in names:
            path = directory.best_epochs / names[now]
            with directory.manifest.rewriting(path):
                save_weights(model, path)
        for path in directory.best_epochs.glob("epoch-[0-9]*.weights.h5"):
            if path.name not in names.values():
                directory.manifest.forget(path)
                path.unlink()


class MovingAverage(keras.callbacks.Callback):
    """Replaces the weights by the optimiser's moving average during validation and what follows.

    Keras' own `SwapEMAWeights` swaps by adding and subtracting, which costs the last bit. Place
    this between the callbacks that should see the average (scores, best weights) and the one that
    writes checkpoints, which has to see the weights themselves.
    """

    def __init__(self) -> None:
        super().__init__()
        self._weights: list[Any] = []

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Puts the weights back where an earlier `fit` of this training ended with the average."""
        self._restore()

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Puts the average in place."""
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        variables = self.model.trainable_variables
        self._weights = [keras.ops.copy(variable) for variable in variables]
        for variable, average in zip(
            variables, optimizer._model_variables_moving_average, strict=True
        ):
            variable.assign(keras.ops.copy(average))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Puts the weights back, bit for bit."""
        self._restore()

    def _restore(self) -> None:
        variables = self.model.trainable_variables if self._weights else []
        for variable, weight in zip(variables, self._weights, strict=True):
            variable.assign(weight)
