"""Trainings that go on where they were killed, to the same bits.

A checkpoint is a weight file as Keras writes it, optimiser included, with two things added: a data
set `keras_addnorm/training_state` (where the training was, and what else it remembered) and a
digest of everything in the file. `model.load_weights` reads it as any other.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import h5py
import keras
import numpy as np

from keras_addnorm.basics import atomic_file
from keras_addnorm.distribution import whole_values
from keras_addnorm.training.checkpoints import STATE_NAME, LastCheckpoints
from keras_addnorm.training.stopping import StopRequest

_DIGEST = "keras_addnorm_digest"
_FILE = re.compile(r"epoch-(\d+)(?:-batch-(\d+))?\.weights\.h5")
# More than the random numbers that a layer draws in an epoch, one for each step.
_DRAWS_PER_EPOCH = 2**24
# Less than those, so that epochs whose numbers start over do not start where another one did.
_SHIFT_PER_ROUND = 2**20
# What a callback of Keras' own remembers of the epochs before.
_KERAS_MEMORY: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: ("wait", "best", "stopped_epoch"),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
}


class DamagedCheckpointError(ValueError):
    """A checkpoint is cut short, or its content is not what was written."""


class Epochs(Protocol):
    """What a training needs of its data.

    `make_training_dataset(...).epochs` is one, and so is `make_training_batches(...)` itself.
    """

    def start_at(self, epoch: int, batch: int = 0) -> None:
        """Says where the next iteration over the data starts."""


@dataclass(frozen=True)
class TrainingState:
    """Where a training is, and what it remembers beside weights and optimiser.

    Attributes:
        epoch: Epochs that are done.
        batch: Batches of the next epoch that are done.
        batches: Batches of a whole epoch.
        random: The state of each random generator of the model; empty between epochs.
        metrics: The metrics' variables; empty between epochs.
        callbacks: What each callback remembers, by the name that it was given.
        plan: The data's `Epochs.plan`, which the place belongs to; empty if it is not known.
    """

    epoch: int
    batch: int = 0
    batches: int = 0
    random: list[list[int]] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    callbacks: dict[str, dict[str, Any]] = field(default_factory=dict)
    plan: str = ""

    def with_batches(self, batches: int, plan: str = "") -> TrainingState:
        """Fits the place to data that may be others, or divided otherwise, than they were.

        Args:
            batches: Batches of a whole epoch now.
            plan: The data's `Epochs.plan` now; empty if it is not known.

        Returns:
            This state, or the one at the start of its epoch if its batches are no more.
        """
        is_known = bool(self.plan and plan)
        if not self.batch or (self.batches == batches and not (is_known and self.plan != plan)):
            return self
        return TrainingState(self.epoch)


def save_checkpoint(model: keras.Model, path: Path, state: TrainingState) -> None:
    """Writes weights, optimiser and state, whole or not at all.

    Args:
        model: A compiled model.
        path: Where to, ending in `.weights.h5`.
        state: Where the training is.
    """
    variables = [*model.variables, *model.optimizer.variables]
    with whole_values(variables), atomic_file(path) as temporary:
        model.save_weights(temporary)
        with h5py.File(temporary, "r+") as file:
            content = json.dumps(dataclasses.asdict(state)).encode()
            file.create_dataset(STATE_NAME, data=np.frombuffer(content, np.uint8))
            file.attrs[_DIGEST] = _digest(file)


def read_checkpoint(path: Path) -> TrainingState:
    """Checks a checkpoint and reads where the training was.

    Args:
        path: The file. One of `LastCheckpoints` without state will do, too: its name says which
            epoch it is.

    Returns:
        The state.

    Raises:
        DamagedCheckpointError: If the file is not what was once written.
    """
    try:
        with h5py.File(path) as file:
            written = file.attrs.get(_DIGEST)
            if written is None:
                return TrainingState(epoch=_place(path)[0])
            found = _digest(file)
            content = bytes(file[STATE_NAME][()])
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise DamagedCheckpointError(f"it cannot be read: {error}") from error
    if found != written:
        raise DamagedCheckpointError("its content has changed since it was written")
    return TrainingState(**json.loads(content))


def newest_checkpoint(
    directory: Path, on_damaged: Callable[[Path, Exception], None]
) -> tuple[Path, TrainingState] | None:
    """Finds the newest checkpoint that is whole.

    Args:
        directory: Where the checkpoints are.
        on_damaged: Called with each newer one that is not, and what is wrong with it.

    Returns:
        The file and where the training was, or None if there is none.
    """
    for path in reversed(_checkpoints(directory)):
        try:
            return path, read_checkpoint(path)
        except DamagedCheckpointError as error:
            on_damaged(path, error)
    return None


def load_checkpoint(model: keras.Model, path: Path, batch: tuple[Any, ...]) -> None:
    """Loads weights and optimiser into a compiled model that has all its variables.

    Args:
        model: The model, compiled as it was.
        path: The checkpoint.
        batch: Any training batch.
    """
    build(model, batch)
    model.load_weights(path)


def build(model: keras.Model, batch: tuple[Any, ...]) -> None:
    """Lets optimiser, loss and metrics make their variables, which Keras leaves to their first use.

    Args:
        model: A compiled model.
        batch: Any training batch: its shapes and types are looked at.
    """
    model._symbolic_build(data_batch=batch)


class TrainingPosition(keras.callbacks.Callback):
    """Puts a training where its checkpoint left it, and knows where it is. First of the callbacks.

    Each epoch starts with random numbers of its own: Keras keeps the state of dropout in variables
    that weight files leave out, so here they follow from the seed and the number of the epoch, and
    in the middle of an epoch they come from the checkpoint.

    An epoch that was begun before is cut short: `fit` always counts a whole epoch's batches, so the
    callback stops it when the rest has been seen, and lets the training go on with the next. With a
    `keras.utils.PyDataset`, such as `make_training_batches` gives, Keras cannot go on then: the
    rest of an epoch is a `fit` of its own, and the same callbacks go on in a second one.

    Args:
        epochs: The data's `epochs`.
        batches_per_epoch: Batches of a whole epoch.
        state: Where to go on; pass its `epoch` to `fit` as `initial_epoch`.
        remembering: Callbacks whose memory belongs to a checkpoint, by any name: those of Keras'
            own that are known here, and those with `memory()` and `remember(memory)`.
        plan: The data's `Epochs.plan`, for the checkpoints.

    Attributes:
        epoch: The epoch that runs, or before and between them the next one; counted from 0.
        batch: How many of its batches are done.
    """

    def __init__(
        self,
        epochs: Epochs,
        batches_per_epoch: int,
        state: TrainingState | None = None,
        remembering: Mapping[str, keras.callbacks.Callback] | None = None,
        plan: str = "",
    ) -> None:
        super().__init__()
        self.epochs = epochs
        self.batches_per_epoch = batches_per_epoch
        self.remembering = dict(remembering or {})
        self.plan = plan
        self.epoch = state.epoch if state else 0
        self.batch = self._first = 0
        self._state = state
        self._is_cut = False

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts an epoch, or goes on in the middle of one.

        Args:
            epoch: Counted from 0.
            logs: Not read.

        Raises:
            ValueError: If an epoch of a `keras.utils.PyDataset` was begun before, and `fit` is to
                go on with the next one.
        """
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
                drawn = _drawn_before(epoch, variable.dtype)
                variable.assign(np.array([seed, drawn], variable.dtype))
        if state.metrics:
            for variable, value in zip(self.model.metrics_variables, state.metrics, strict=True):
                variable.assign(value)
        for name, memory in state.callbacks.items():
            if name in self.remembering:
                _remember(self.remembering[name], memory)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Counts the batch, and ends an epoch that was begun before.

        Args:
            batch: Index of the latest batch since this process began the epoch.
            logs: Not read.
        """
        self.batch = self._first + batch + 1
        if self._first and self.batch >= self.batches_per_epoch:
            self._is_cut = self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Lets the training go on after an epoch that was cut.

        Args:
            epoch: Counted from 0.
            logs: Not read.
        """
        if self._is_cut:
            self.model.stop_training = False
        self.epoch, self.batch = epoch + 1, 0

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Keeps what callbacks remember for a second `fit`, where those of Keras would start anew.

        Args:
            logs: Not read.
        """
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
        )


class Checkpoints(keras.callbacks.Callback):
    """Writes checkpoints at the end of epochs and inside of them. Last of the callbacks.

    Files are `epoch-0002.weights.h5` (two epochs are done) and `epoch-0002-batch-000120.weights.h5`
    (and 120 batches of the third). Those inside of an epoch go when
    two newer ones are there, and those of later places as soon as a new one is written: they are
    damaged, or were trained on other data.

    Args:
        directory: Where the files go; made if missing.
        position: The first of the callbacks, which knows where the training is.
        keep: How many epochs' files are kept.
        every_batches: Write inside an epoch every so many batches; 0 = not by their number.
        every_minutes: Write inside an epoch every so many minutes; 0 = not by time.
        before: Called before each writing; what it raises ends the training, and the files that
            there are stay.
        stop_request: Where somebody may ask to stop; then it writes, and raises `Stopped`.

    Attributes:
        paths: The kept files of whole epochs, oldest first.
    """

    def __init__(
        self,
        directory: Path,
        position: TrainingPosition,
        *,
        keep: int = 2,
        every_batches: int = 0,
        every_minutes: float = 0.0,
        before: Callable[[], None] = lambda: None,
        stop_request: StopRequest | None = None,
    ) -> None:
        super().__init__()
        self.directory = directory
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
        """Takes the model that `fit` trains.

        Args:
            model: The model.
        """
        super().set_model(model)
        self._epochs.set_model(model)

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Removes what a killed process left half written, and starts the clock.

        Args:
            logs: Not read.
        """
        for path in self.directory.glob(".*.weights.h5"):
            path.unlink()
        self._written = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint if it is due.

        Args:
            batch: Not read: the position knows better.
            logs: Not read.
        """
        done = self.position.batch
        # The end of an epoch writes its own, after the validation.
        if done < self.position.batches_per_epoch and self._is_due(done):
            name = f"epoch-{self.position.epoch:04d}-batch-{done:06d}.weights.h5"
            self._save(self.model, self.directory / name)
            self.stop_request.obey()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the epoch's checkpoint.

        Args:
            epoch: Counted from 0.
            logs: Not read.
        """
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
        kept = [other for other in _checkpoints(self.directory) if _place(other) <= _place(path)]
        for other in _checkpoints(self.directory):
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


def _drawn_before(epoch: int, dtype: str) -> int:
    """Where the random numbers of an epoch start, in the range of the states' type."""
    return epoch * _DRAWS_PER_EPOCH % (int(np.iinfo(dtype).max) + 1 - _SHIFT_PER_ROUND)


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


def _place(path: Path) -> tuple[int, int]:
    """Epochs and batches done, as the name of a checkpoint says."""
    match = _FILE.fullmatch(path.name)
    return (int(match[1]), int(match[2] or 0)) if match else (-1, -1)


def _checkpoints(directory: Path) -> list[Path]:
    """The checkpoints of a directory, oldest first."""
    if not directory.is_dir():
        return []
    return sorted((path for path in directory.iterdir() if _FILE.fullmatch(path.name)), key=_place)


def _digest(file: h5py.File) -> str:
    digest = hashlib.blake2b(digest_size=16)

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            digest.update(f"{name} {item.shape} {item.dtype}\n".encode())
            digest.update(np.ascontiguousarray(item[()]).tobytes())

    file.visititems(visit)
    return digest.hexdigest()
