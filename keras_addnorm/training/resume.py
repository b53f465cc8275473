"""The callbacks with which a killed training resumes bit for bit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np

from keras_addnorm.basics.argument_checks import (
    is_number,
    require_function,
    require_int,
    require_size,
    to_path,
)
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.training.callback_memory import memory_of, remember, require_known
from keras_addnorm.training.checkpoint_file import (
    TrainingState,
    checkpoint_files,
    place_in_name,
    save_checkpoint,
)
from keras_addnorm.training.checkpoints import LastCheckpoints
from keras_addnorm.training.held_variables import random_states
from keras_addnorm.training.stopping import StopRequest

# Each epoch draws its random numbers from a counter. The counters of two epochs start this far
# apart: further than a layer counts in an epoch, with one number for each step.
_COUNTER_STRIDE = 2**24
# Counters wrap around at the end of their type's range. Starts are then shifted by this much, less
# than a stride, so that no epoch starts where an earlier one did.
_SHIFT_AFTER_WRAP = 2**20


class StartableData(Protocol):
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
    rest of the epoch is a `fit` of its own, and the same callbacks go on in a second one. With
    `steps_per_execution` the last execution of a resumed epoch has the steps that are left.

    Args:
        epochs: The data's `epochs`.
        batches_per_epoch: Batches of a whole epoch.
        state: Where to go on; pass its `epoch` to `fit` as `initial_epoch`.
        remembering: Callbacks whose memory belongs to a checkpoint, by any name: Keras' own
            `EarlyStopping`, `ReduceLROnPlateau`, `ModelCheckpoint` and `TensorBoard`, those of it
            that remember nothing, and any with `memory()` and `remember(memory)`.
        plan: The data's `Epochs.plan`, for the checkpoints.
        tokenizers: A digest of the tokenizers that the ids come from, for the checkpoints.

    Attributes:
        epoch: The epoch that runs, or before and between them the next one; counted from 0.
        batch: How many of its batches are done.

    Raises:
        ValueError: If an argument is none of these, a callback is not known, or is made to remember
            what a checkpoint cannot hold, such as `EarlyStopping(restore_best_weights=True)`. In
            `fit`, if an epoch of a `keras.utils.PyDataset` is resumed and another one follows.
    """

    def __init__(
        self,
        epochs: StartableData,
        batches_per_epoch: int,
        state: TrainingState | None = None,
        remembering: Mapping[str, keras.callbacks.Callback] | None = None,
        plan: str = "",
        tokenizers: str = "",
    ) -> None:
        super().__init__()
        if not hasattr(epochs, "start_at"):
            raise ArgumentError(
                "A training starts at a place of its data.",
                "`epochs` with a method start_at(epoch, batch), such as "
                "make_training_dataset(...).epochs",
                epochs=epochs,
            )
        require_size(batches_per_epoch=batches_per_epoch)
        if state is not None and not isinstance(state, TrainingState):
            raise ArgumentError(
                "`state` says where a training goes on.", "a TrainingState, or None", state=state
            )
        if remembering is not None and not isinstance(remembering, Mapping):
            raise ArgumentError(
                "`remembering` has callbacks by their names.", "a dict, or None", value=remembering
            )
        for name, value in {"plan": plan, "tokenizers": tokenizers}.items():
            if not isinstance(value, str):
                raise ArgumentError(f"`{name}` is a digest.", "a text", **{name: value})
        self.epochs = epochs
        self.batches_per_epoch = batches_per_epoch
        self.remembering = dict(remembering or {})
        require_known(self.remembering)
        self.plan = plan
        self.tokenizers = tokenizers
        self.epoch = state.epoch if state else 0
        self.batch = self._first = 0
        self._state = state
        self._is_cut = False
        self._steps = 1
        self._train_function: Any = None
        self._rates: list[tuple[Any, Any]] = []
        self._weights: list[tuple[Any, Any]] = []

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Puts back the weights that an earlier `fit` ended with, where Keras averaged them."""
        for variable, value in self._weights:
            variable.assign(value)
        self._weights = []

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts an epoch, or goes on in the middle of one."""
        state, self._state = self._state or TrainingState(epoch), None
        if state.batch and isinstance(self.epochs, keras.utils.PyDataset):
            _require_last_epoch(epoch, self.params["epochs"])
        self.epoch, self.batch = epoch, state.batch
        self._first = state.batch
        self._is_cut = False
        self._require_own(state)
        self.epochs.start_at(epoch, state.batch)
        for index, variable in enumerate(random_states(self.model)):
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
                remember(self.remembering[name], memory)
        if self._first:
            self._steps = self.model.steps_per_execution
            self._rates = _copies(
                one for one in self.model.optimizer.variables if one.name == "learning_rate"
            )

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keeps an epoch that an earlier process began as it was to be."""
        if not self._first:
            return
        # What a callback does to the rate at the start of an epoch has been done.
        for variable, rate in self._rates:
            variable.assign(rate)
        self._rates = []
        left = self.batches_per_epoch - self.batch
        if left < self._steps:  # Else Keras would take batches from behind the end of the epoch.
            self._train_function = self.model.train_function
            self.model.steps_per_execution = left
            self.model.make_train_function(force=True)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Counts the batches, and ends an epoch that an earlier process began."""
        # Of an execution that the end of the epoch has cut short, Keras counts all steps.
        self.batch = min(self._first + batch + 1, self.batches_per_epoch)
        if self._first and self.batch == self.batches_per_epoch:
            self._is_cut = self.model.stop_training = True
            if self._train_function is not None:
                self.model.steps_per_execution = self._steps
                self.model.train_function, self._train_function = self._train_function, None

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Lets the training go on after an epoch that was cut short."""
        if self._is_cut:
            self.model.stop_training = False
            optimizer = self.model.optimizer
            averages = getattr(optimizer, "inner_optimizer", optimizer).use_ema
            if averages and isinstance(self.epochs, keras.utils.PyDataset):
                # This `fit` ends here, and Keras then puts the moving average in their place.
                self._weights = _copies(self.model.trainable_variables)
        self.epoch, self.batch = epoch + 1, 0

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Keeps what callbacks remember for a second `fit`, where those of Keras forget it."""
        if not self.batch:
            self._state = self.state()

    def _require_own(self, state: TrainingState) -> None:
        """Raises a `ValueError` if a state is of another model: its lists have other sizes."""
        lists: tuple[tuple[str, Any, list[Any]], ...] = (
            ("random", state.random, random_states(self.model)),
            ("metrics", state.metrics, self.model.metrics_variables),
        )
        for name, values, variables in lists:
            if values and not _fit(values, variables):
                raise ArgumentError(
                    f"The training cannot go on in the middle of an epoch: `{name}` of its "
                    "checkpoint is of another model or other metrics.",
                    f"{len(variables)} lists of numbers, as this model has them",
                    "Compile the model as it was, or begin with a checkpoint between two epochs.",
                    **{name: values},
                )

    def state(self) -> TrainingState:
        """Returns where the training is now."""
        inside = bool(self.batch)
        numpy = keras.ops.convert_to_numpy
        return TrainingState(
            epoch=self.epoch,
            batch=self.batch,
            batches=self.batches_per_epoch,
            random=[numpy(v).tolist() for v in random_states(self.model)] if inside else [],
            metrics=[numpy(v).tolist() for v in self.model.metrics_variables] if inside else [],
            callbacks={name: memory_of(callback) for name, callback in self.remembering.items()},
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
        every_batches: Write within an epoch every so many batches, with `steps_per_execution` at
            the end of the execution that has the batch; 0 = not by their number.
        every_minutes: Write within an epoch every so many minutes; 0 = not by time.
        before: Called before each file is written; an error of it ends the training and leaves the
            existing files.
        stop_request: A request to stop; once it is made, a checkpoint is written and `Stopped`
            raised.

    Attributes:
        paths: The kept files of whole epochs, oldest first.

    Raises:
        ValueError: If a number is negative, or an argument is none of these.
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
        require_position(position)
        require_int(
            "Checkpoints are written every so many batches.", least=0, every_batches=every_batches
        )
        if not is_number(every_minutes, least=0):
            raise ArgumentError(
                "`every_minutes` is a time.", "a number >= 0", every_minutes=every_minutes
            )
        require_function(before=before)
        if stop_request is not None and not isinstance(stop_request, StopRequest):
            raise ArgumentError(
                "`stop_request` is what a training is stopped by.",
                "a StopRequest, or None",
                stop_request=stop_request,
            )
        self.position = position
        self.every_batches = every_batches
        self.every_minutes = every_minutes
        self.before = before
        self.stop_request = StopRequest() if stop_request is None else stop_request
        self._epochs = LastCheckpoints(directory, keep, self._save)
        self._written = time.monotonic()
        self._seen = 0

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
        for path in self.directory.glob(".[0-9]*.epoch-*.weights.h5"):
            path.unlink()
        self._written = time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Counts from where the epoch starts."""
        self._seen = self.position.batch

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint if it is due."""
        before, done = self._seen, self.position.batch
        self._seen = done
        # The end of an epoch writes its own, after the validation.
        if done < self.position.batches_per_epoch and self._is_due(before, done):
            name = f"epoch-{self.position.epoch:04d}-batch-{done:06d}.weights.h5"
            self._save(self.model, self.directory / name)
            self.stop_request.obey()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the epoch's checkpoint."""
        self._epochs.on_epoch_end(epoch)
        self.stop_request.obey()

    def _is_due(self, before: int, done: int) -> bool:
        every = self.every_batches
        minutes = (time.monotonic() - self._written) / 60
        return bool(
            self.stop_request.signal_number is not None
            or (every and done // every > before // every)
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


def require_position(position: Any) -> None:
    """Raises a `ValueError` unless a callback is given what knows the place of its training."""
    if not isinstance(position, TrainingPosition):
        raise ArgumentError(
            "`position` knows where a training is.",
            "the TrainingPosition that is the first of its callbacks",
            position=position,
        )


def _require_last_epoch(epoch: int, epochs: int) -> None:
    if epochs > epoch + 1:
        raise ArgumentError(
            "Keras cannot go on behind an epoch of a PyDataset that is cut short.",
            f"a `fit` that ends with the epoch that was begun, `epochs={epoch + 1}`",
            f"Call `fit` with `epochs={epoch + 1}` first, and then once more with "
            f"initial_epoch={epoch + 1}, `epochs={epochs}` and the same callbacks.",
            epochs=epochs,
        )


def _fit(values: list[Any], variables: list[Any]) -> bool:
    """Whether each variable can hold its value."""
    if len(values) != len(variables):
        return False
    for value, variable in zip(values, variables, strict=True):
        try:
            array = np.array(value, keras.backend.standardize_dtype(variable.dtype))
        except (ValueError, TypeError, OverflowError):
            return False
        if array.shape != tuple(variable.shape):
            return False
    return True


def _copies(variables: Iterable[Any]) -> list[tuple[Any, Any]]:
    return [(variable, keras.ops.convert_to_numpy(variable).copy()) for variable in variables]


def _first_count(epoch: int, dtype: str) -> int:
    """Where the counter of random numbers starts in an epoch, within the range of its type."""
    return epoch * _COUNTER_STRIDE % (int(np.iinfo(dtype).max) + 1 - _SHIFT_AFTER_WRAP)
