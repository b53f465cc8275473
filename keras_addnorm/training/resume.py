"""The callbacks with which a killed training resumes bit for bit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np

from keras_addnorm.basics.paths import to_path
from keras_addnorm.training.checkpoint_file import (
    TrainingState,
    checkpoint_files,
    place_in_name,
    save_checkpoint,
)
from keras_addnorm.training.checkpoints import LastCheckpoints
from keras_addnorm.training.stopping import StopRequest

# Each epoch draws its random numbers from a counter. The counters of two epochs start this far
# apart: further than a layer counts in an epoch, with one number for each step.
_COUNTER_STRIDE = 2**24
# Counters wrap around at the end of their type's range. Starts are then shifted by this much, less
# than a stride, so that no epoch starts where an earlier one did.
_SHIFT_AFTER_WRAP = 2**20
# The attributes in which callbacks of Keras remember earlier epochs.
_KERAS_MEMORY: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: ("wait", "best", "stopped_epoch"),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
}


class Epochs(Protocol):
    """What a training needs of its data.

    `make_training_dataset(...).epochs` is one, and so is `make_training_batches(...)` itself.
    """

    def start_at(self, epoch: int, batch: int = 0) -> None:
        """Says where the next iteration over the data starts."""


class TrainingPosition(keras.callbacks.Callback):
    """Takes a training to the place of its checkpoint, and knows its place. First of the callbacks.

    Each epoch starts with random numbers of its own. Keras keeps the state of dropout in variables
    that weight files leave out. Here these follow from the seed and the number of the epoch; in the
    middle of an epoch they come from the checkpoint.

    A resumed epoch is cut short: `fit` always counts a whole epoch's batches, so the callback stops
    it after the remaining ones and lets the training go on with the next epoch. With a
    `keras.utils.PyDataset`, such as `make_training_batches` gives, Keras cannot go on then: the
    rest of the epoch is a `fit` of its own, and the same callbacks go on in a second one.

    Args:
        epochs: The data's `epochs`.
        batches_per_epoch: Batches of a whole epoch.
        state: Where to go on; pass its `epoch` to `fit` as `initial_epoch`.
        remembering: Callbacks whose memory belongs to a checkpoint, by any name: those of Keras'
            own that are known here, and those with `memory()` and `remember(memory)`.
        plan: The data's `Epochs.plan`, for the checkpoints.
        tokenizers: A digest of the tokenizers that the ids come from, for the checkpoints.

    Attributes:
        epoch: The epoch that runs, or before and between them the next one; counted from 0.
        batch: How many of its batches are done.

    Raises:
        ValueError: In `fit`, if an epoch of a `keras.utils.PyDataset` is resumed and another one is
            to follow.
    """

    def __init__(
        self,
        epochs: Epochs,
        batches_per_epoch: int,
        state: TrainingState | None = None,
        remembering: Mapping[str, keras.callbacks.Callback] | None = None,
        plan: str = "",
        tokenizers: str = "",
    ) -> None:
        super().__init__()
        self.epochs = epochs
        self.batches_per_epoch = batches_per_epoch
        self.remembering = dict(remembering or {})
        self.plan = plan
        self.tokenizers = tokenizers
        self.epoch = state.epoch if state else 0
        self.batch = self._first = 0
        self._state = state
        self._is_cut = False

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts an epoch, or goes on in the middle of one."""
        state, self._state = self._state or TrainingState(epoch), None
        if state.batch and isinstance(self.epochs, keras.utils.PyDataset):
            _require_last_epoch(epoch, self.params["epochs"])
        self.epoch, self.batch = epoch, state.batch
        self._first = state.batch
        self._is_cut = False
        self.epochs.start_at(epoch, state.batch)
        for index, variable in enumerate(_random_states(self.model)):
            if state.random:
                variable.assign(np.array(state.random[index], variable.dtype))
            else:
                seed = keras.ops.convert_to_numpy(variable)[0]
                count = _first_count(epoch, variable.dtype)
                variable.assign(np.array([seed, count], variable.dtype))
        if state.metrics:
            for variable, value in zip(self.model.metrics_variables, state.metrics, strict=True):
                variable.assign(value)
        for name, memory in state.callbacks.items():
            if name in self.remembering:
                _remember(self.remembering[name], memory)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Counts the batch, and ends an epoch that an earlier process began."""
        self.batch = self._first + batch + 1
        if self._first and self.batch >= self.batches_per_epoch:
            self._is_cut = self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Lets the training go on after an epoch that was cut short."""
        if self._is_cut:
            self.model.stop_training = False
        self.epoch, self.batch = epoch + 1, 0

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Keeps what callbacks remember for a second `fit`, where those of Keras forget it."""
        if not self.batch:
            self._state = self.state()

    def state(self) -> TrainingState:
        """Returns where the training is now."""
        inside = bool(self.batch)
        numpy = keras.ops.convert_to_numpy
        return TrainingState(
            epoch=self.epoch,
            batch=self.batch,
            batches=self.batches_per_epoch,
            random=[numpy(v).tolist() for v in _random_states(self.model)] if inside else [],
            metrics=[numpy(v).tolist() for v in self.model.metrics_variables] if inside else [],
            callbacks={name: _memory(callback) for name, callback in self.remembering.items()},
            plan=self.plan,
            tokenizers=self.tokenizers,
        )


class Checkpoints(keras.callbacks.Callback):
    """Writes checkpoints at the end of epochs and within them. Last of the callbacks.

    Files are `epoch-0002.weights.h5` (two epochs are done) and `epoch-0002-batch-000120.weights.h5`
    (and 120 batches of the third). A file within an epoch is deleted once two newer ones exist. One
    of a later place is deleted as soon as a new one is written: it is damaged, or was trained on
    other data.

    Args:
        directory: Where the files go; made if missing.
        position: The first of the callbacks, which knows where the training is.
        keep: How many epochs' files are kept.
        every_batches: Write within an epoch every so many batches; 0 = not by their number.
        every_minutes: Write within an epoch every so many minutes; 0 = not by time.
        before: Called before each file is written; an error of it ends the training and leaves the
            existing files.
        stop_request: A request to stop; once it is made, a checkpoint is written and `Stopped`
            raised.

    Attributes:
        paths: The kept files of whole epochs, oldest first.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        position: TrainingPosition,
        *,
        keep: int = 2,
        every_batches: int = 0,
        every_minutes: float = 0.0,
        before: Callable[[], None] = lambda: None,
        stop_request: StopRequest | None = None,
    ) -> None:
        super().__init__()
        self.directory = to_path(directory)
        self.position = position
        self.every_batches = every_batches
        self.every_minutes = every_minutes
        self.before = before
        self.stop_request = StopRequest() if stop_request is None else stop_request
        self._epochs = LastCheckpoints(directory, keep, self._save)
        self._written = time.monotonic()

    @property
    def paths(self) -> list[Path]:
        """The kept files of whole epochs, oldest first; also if no epoch has run since."""
        return self._epochs.files_until(self.position.epoch)[-self._epochs.keep :]

    def set_model(self, model: keras.Model) -> None:
        """Takes the model that `fit` trains."""
        super().set_model(model)
        self._epochs.set_model(model)

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Makes the folder, removes what a killed process left half written, starts the clock."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in self.directory.glob(".*.weights.h5"):
            path.unlink()
        self._written = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint if it is due."""
        done = self.position.batch
        # The end of an epoch writes its own, after the validation.
        if done < self.position.batches_per_epoch and self._is_due(done):
            name = f"epoch-{self.position.epoch:04d}-batch-{done:06d}.weights.h5"
            self._save(self.model, self.directory / name)
            self.stop_request.obey()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the epoch's checkpoint."""
        self._epochs.on_epoch_end(epoch)
        self.stop_request.obey()

    def _is_due(self, done: int) -> bool:
        minutes = (time.monotonic() - self._written) / 60
        return bool(
            self.stop_request.signal_number is not None
            or (self.every_batches and done % self.every_batches == 0)
            or (self.every_minutes and minutes >= self.every_minutes)
        )

    def _save(self, model: keras.Model, path: Path) -> None:
        self.before()
        save_checkpoint(model, path, self.position.state())
        self._written = time.monotonic()
        kept = [
            other
            for other in checkpoint_files(self.directory)
            if place_in_name(other) <= place_in_name(path)
        ]
        for other in checkpoint_files(self.directory):
            if "-batch-" in other.name and other not in kept[-2:]:
                other.unlink()


def _require_last_epoch(epoch: int, epochs: int) -> None:
    if epochs > epoch + 1:
        raise ValueError(
            "Keras cannot go on behind an epoch of a PyDataset that is cut short. Expected a `fit` "
            f"that ends with the epoch that was begun, epochs={epoch + 1}; received "
            f"epochs={epochs}. Call `fit` with epochs={epoch + 1} first, and then once more with "
            f"initial_epoch={epoch + 1}, epochs={epochs} and the same callbacks."
        )


def _random_states(model: keras.Model) -> list[Any]:
    return [v for v in model.variables if v.path.endswith("seed_generator_state")]


def _first_count(epoch: int, dtype: str) -> int:
    """Where the counter of random numbers starts in an epoch, within the range of its type."""
    return epoch * _COUNTER_STRIDE % (int(np.iinfo(dtype).max) + 1 - _SHIFT_AFTER_WRAP)


def _memory(callback: Any) -> dict[str, Any]:
    if hasattr(callback, "memory"):
        memory: dict[str, Any] = callback.memory()
        return memory
    values = {name: getattr(callback, name) for name in _KERAS_MEMORY[type(callback)]}
    return {name: None if value is None else float(value) for name, value in values.items()}


def _remember(callback: Any, memory: dict[str, Any]) -> None:
    if hasattr(callback, "remember"):
        callback.remember(memory)
        return
    for name, value in memory.items():
        setattr(callback, name, value)
