"""The file format of a checkpoint: writing, checking, reading and finding them.

A checkpoint is a weight file as Keras writes it, optimiser included, with three additions: a data
set `keras_addnorm/training_state` (where the training was, and what its callbacks remember), a
group `keras_addnorm/variables` (the values that layers hold and do not save) and a digest of
everything in the file. `model.load_weights` reads it as any other.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import is_whole, to_path
from keras_addnorm.basics.atomic import require_space
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.integrity import (
    STATE_NAME,
    DamagedFileError,
    open_weights,
    require_intact_weights,
    write_weights_digest,
)
from keras_addnorm.basics.text import parse_json
from keras_addnorm.distribution import whole_values
from keras_addnorm.training.checkpoints import largest_file
from keras_addnorm.training.held_variables import (
    assign,
    matched,
    not_held,
    read_places,
    write_variables,
)

__all__ = [
    "TrainingState",
    "build_variables",
    "checkpoint_files",
    "load_checkpoint",
    "newest_checkpoint",
    "place_in_name",
    "read_checkpoint",
    "read_unverified",
    "save_checkpoint",
]

_LARGEST_PLACE = 2**53
_FILE = re.compile(r"epoch-(\d+)(?:-batch-(\d+))?\.weights\.h5")


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
        tokenizers: A digest of the tokenizers whose ids the model reads and writes; empty if it is
            not known.
    """

    epoch: int
    batch: int = 0
    batches: int = 0
    random: list[list[int]] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    callbacks: dict[str, dict[str, Any]] = field(default_factory=dict)
    plan: str = ""
    tokenizers: str = ""

    def with_batches(self, batches: int, plan: str = "") -> TrainingState:
        """Fits the place to the present data, which may differ or be divided differently.

        It is the start of its epoch if its batches are no more. `plan` is empty if it is not known.
        """
        is_known = bool(self.plan and plan)
        if not self.batch or (self.batches == batches and not (is_known and self.plan != plan)):
            return self
        return TrainingState(self.epoch)


def save_checkpoint(model: keras.Model, path: str | os.PathLike[str], state: TrainingState) -> None:
    """Writes weights, optimiser and state of a compiled model, whole or not at all.

    For `model.load_weights` the file has what each layer saves: the merged weights of one with
    LoRA. For `load_checkpoint` it has what each variable holds.
    """
    variables = [*model.variables, *model.optimizer.variables]
    with whole_values(variables), atomic_file(path) as temporary:
        require_space(temporary.parent, largest_file(variables))
        model.save_weights(temporary)
        with h5py.File(temporary, "r+") as file:
            write_variables(file, model, temporary.parent)
            content = json.dumps(dataclasses.asdict(state)).encode()
            file.create_dataset(STATE_NAME, data=np.frombuffer(content, np.uint8))
            write_weights_digest(file)


def read_checkpoint(path: str | os.PathLike[str]) -> TrainingState:
    """Reads where the training was, from a checkpoint that is what its digest says."""
    with open_weights(path) as file:
        require_intact_weights(file)
    return read_unverified(path)


def read_unverified(path: str | os.PathLike[str]) -> TrainingState:
    """Does what `read_checkpoint` does with a file that may have changed."""
    with open_weights(path) as file:
        if STATE_NAME not in file:
            return TrainingState(epoch=place_in_name(path)[0])
        return _state(parse_json(bytes(file[STATE_NAME][()])))


def _state(content: Any) -> TrainingState:
    """A state as it was written; a `ValueError` says that it is none."""
    state = TrainingState(**content)
    places = (state.epoch, state.batch, state.batches)
    if not (
        all(is_whole(place, 0, _LARGEST_PLACE) for place in places)
        and isinstance(state.plan, str)
        and isinstance(state.tokenizers, str)
        and isinstance(state.metrics, list)
        and isinstance(state.random, list)
        and all(isinstance(one, list) and all(is_whole(n, 0) for n in one) for one in state.random)
        and isinstance(state.callbacks, dict)
        and all(isinstance(memory, dict) for memory in state.callbacks.values())
    ):
        raise ValueError(f"{STATE_NAME!r} in it is not what was written")
    return state


def newest_checkpoint(
    directory: str | os.PathLike[str],
    on_damaged: Callable[[Path, Exception], None],
    read: Callable[[Path], TrainingState] = read_checkpoint,
) -> tuple[Path, TrainingState] | None:
    """Finds the newest checkpoint that is whole.

    Args:
        directory: Where the checkpoints are.
        on_damaged: Called with each newer one that is not, and what is wrong with it.
        read: Reads one: `read_checkpoint`, or `read_unverified`.

    Returns:
        The file and where the training was, or None if there is none.
    """
    for path in reversed(checkpoint_files(directory)):
        try:
            return path, read(path)
        except DamagedFileError as error:
            on_damaged(path, error)
    return None


def load_checkpoint(
    model: keras.Model, path: str | os.PathLike[str], batch: tuple[Any, ...]
) -> None:
    """Loads weights and optimiser into a compiled model that has all its variables.

    Each variable of the model and its optimiser gets the value that it had, LoRA's matrices, the
    state of quantised layers and the seeds of dropout included.

    Args:
        model: The model, compiled as it was; with LoRA or quantised as it was.
        path: The checkpoint.
        batch: Any training batch.

    Raises:
        DamagedFileError: If the file cannot be read.
        ValueError: If the model or its optimiser has other variables than those in the file. Of
            some models an earlier version did not write all of them: of those with LoRA.
    """
    build_variables(model, batch)
    try:
        with open_weights(path) as file:
            places = read_places(file)
        pairs = None if places is None else matched(places, model, path)
        _load_weights(model, path)
        with h5py.File(path) as file:
            if pairs is not None:
                assign(pairs, file)
                return
            missing = not_held(file, model)
    except (OSError, RuntimeError, LookupError, DamagedFileError) as error:  # Those of HDF5.
        raise DamagedFileError(
            f"The checkpoint '{path}' cannot be read: {error}. Copy it again from where it is "
            "whole, or remove it: the one before it is taken then."
        ) from error
    if missing:
        raise ArgumentError(
            f"The training cannot go on from the checkpoint '{path}': it does not hold "
            f"{len(missing)} variables that the model has, {', '.join(missing[:3])} among them.",
            "a checkpoint of `save_checkpoint` that has all of them",
            "Its weights can be the start of a new training: load them with `model.load_weights`, "
            "and compile anew.",
            received="one of an earlier version, which has the weights with LoRA merged, or a "
            "file of another kind",
        )


def _load_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    try:
        model.load_weights(path)
    # Those of Keras for arrays of another shape, or what stands in their place.
    except (ValueError, TypeError, AttributeError) as error:
        raise ArgumentError(
            f"The checkpoint '{path}' is of another model or optimiser.", because=error
        ) from error


def build_variables(model: keras.Model, batch: tuple[Any, ...]) -> None:
    """Makes the variables of optimiser, loss and metrics, which Keras leaves to their first use."""
    model._symbolic_build(data_batch=batch)


def place_in_name(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Returns the epochs and batches done that the name of a checkpoint says; (-1, -1) if none."""
    match = _FILE.fullmatch(to_path(path).name)
    return (int(match[1]), int(match[2] or 0)) if match else (-1, -1)


def checkpoint_files(directory: str | os.PathLike[str]) -> list[Path]:
    """Lists the checkpoints of a directory, oldest first."""
    directory = to_path(directory)
    if not directory.is_dir():
        return []
    found = (path for path in directory.iterdir() if _FILE.fullmatch(path.name))
    return sorted(found, key=place_in_name)
