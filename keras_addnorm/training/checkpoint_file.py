"""The file format of a checkpoint: writing, checking, reading and finding them.

A checkpoint is a weight file as Keras writes it, optimiser included, with two additions: a data set
`keras_addnorm/training_state` (where the training was, and what its callbacks remember) and a
digest of everything in the file. `model.load_weights` reads it as any other.
"""

from __future__ import annotations

import dataclasses
import hashlib
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
from keras_addnorm.distribution import whole_values
from keras_addnorm.training.checkpoints import STATE_NAME

_DIGEST = "keras_addnorm_digest"
_FILE = re.compile(r"epoch-(\d+)(?:-batch-(\d+))?\.weights\.h5")


class DamagedCheckpointError(ValueError):
    """A checkpoint is cut short, or its content is not what was written."""


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
        """Fits the place to the present data, which may differ or be divided differently.

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


def save_checkpoint(model: keras.Model, path: str | os.PathLike[str], state: TrainingState) -> None:
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


def read_checkpoint(path: str | os.PathLike[str]) -> TrainingState:
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
                return TrainingState(epoch=place_in_name(path)[0])
            found = _digest(file)
            content = bytes(file[STATE_NAME][()])
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise DamagedCheckpointError(f"it cannot be read: {error}") from error
    if found != written:
        raise DamagedCheckpointError("its content has changed since it was written")
    return TrainingState(**json.loads(content))


def newest_checkpoint(
    directory: str | os.PathLike[str], on_damaged: Callable[[Path, Exception], None]
) -> tuple[Path, TrainingState] | None:
    """Finds the newest checkpoint that is whole.

    Args:
        directory: Where the checkpoints are.
        on_damaged: Called with each newer one that is not, and what is wrong with it.

    Returns:
        The file and where the training was, or None if there is none.
    """
    for path in reversed(checkpoint_files(directory)):
        try:
            return path, read_checkpoint(path)
        except DamagedCheckpointError as error:
            on_damaged(path, error)
    return None


def load_checkpoint(
    model: keras.Model, path: str | os.PathLike[str], batch: tuple[Any, ...]
) -> None:
    """Loads weights and optimiser into a compiled model that has all its variables.

    Args:
        model: The model, compiled as it was.
        path: The checkpoint.
        batch: Any training batch.
    """
    build_variables(model, batch)
    model.load_weights(path)


def build_variables(model: keras.Model, batch: tuple[Any, ...]) -> None:
    """Makes the variables of optimiser, loss and metrics, which Keras leaves to their first use.

    Args:
        model: A compiled model.
        batch: Any training batch: its shapes and types count.
    """
    model._symbolic_build(data_batch=batch)


def place_in_name(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Returns the epochs and batches done that the name of a checkpoint says; (-1, -1) if none."""
    match = _FILE.fullmatch(Path(path).name)
    return (int(match[1]), int(match[2] or 0)) if match else (-1, -1)


def checkpoint_files(directory: str | os.PathLike[str]) -> list[Path]:
    """Lists the checkpoints of a directory, oldest first."""
    directory = Path(directory)
    if not directory.is_dir():
        return []
    found = (path for path in directory.iterdir() if _FILE.fullmatch(path.name))
    return sorted(found, key=place_in_name)


def _digest(file: h5py.File) -> str:
    digest = hashlib.blake2b(digest_size=16)

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            digest.update(f"{name} {item.shape} {item.dtype}\n".encode())
            digest.update(np.ascontiguousarray(item[()]).tobytes())

    file.visititems(visit)
    return digest.hexdigest()
