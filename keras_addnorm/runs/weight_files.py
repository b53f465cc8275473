"""Weight files without an optimiser: those of the best epochs, and the mean of the last ones."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import keras

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.atomic import require_space
from keras_addnorm.basics.integrity import DIGEST_ATTRIBUTE, TRAINING_GROUP
from keras_addnorm.distribution import whole_values
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.training import average_checkpoints
from keras_addnorm.training.checkpoints import largest_file, stored_variables

_NUMBERS_AT_ONCE = 1 << 20


def save_weights(model: keras.Model, path: str | Path) -> None:
    """Writes a model's weights without its optimiser's, whole or not at all.

    Keras would save Adam's two moments as well: three times the size.
    """
    path = to_path(path)
    with _folder_beside(path) as folder, whole_values(model.variables):
        everything = Path(folder, path.name)
        # Twice: what Keras writes, and the copy without the optimiser.
        require_space(folder, largest_file(stored_variables(model)), largest_file(model.variables))
        model.save_weights(everything)
        _copy_weights(everything, path)


def save_best_weights(model: keras.Model, directory: RunDirectory) -> None:
    """Writes the weights of a run's best epoch, and their digest."""
    with directory.manifest.rewriting(directory.best_weights):
        save_weights(model, directory.best_weights)


def save_loaded_weights(model: keras.Model, directory: RunDirectory) -> None:
    """Writes the same file of a model that was just loaded, a part of a weight at a time.

    Keras copies each weight twice to write it, and the largest is four tenths of OPUS-MT. So Keras
    writes a file in which each weight is its number, and the weights are put in their places.

    Args:
        model: A model without an optimiser and LoRA, with weights of 32 bits.
        directory: The run.
    """
    path, variables = directory.best_weights, model.variables
    with (
        directory.manifest.rewriting(path),
        _folder_beside(path) as folder,
        atomic_file(path) as temporary,
    ):
        require_space(folder, largest_file(variables))
        numbers = Path(folder, path.name)
        with _numbered(variables):
            model.save_weights(numbers)
        with h5py.File(numbers) as old, h5py.File(temporary, "w") as new:
            new.attrs.update(old.attrs)
            for key in old:
                old.copy(key, new)
            places: dict[str, Any] = {}
            new.visititems(lambda name, found: places.update({name: found}))
            for name, found in places.items():
                if isinstance(found, h5py.Dataset):
                    variable = variables[int(found[0])]
                    del new[name]
                    _write_in_parts(new, name, variable)


@contextlib.contextmanager
def _numbered(variables: Sequence[Any]) -> Iterator[None]:
    """Lets each variable have its number in the list as its value."""
    values = [variable._value for variable in variables]
    try:
        for number, variable in enumerate(variables):
            variable._value = keras.ops.convert_to_tensor([number], dtype="int32")
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable._value = value


def _write_in_parts(file: h5py.File, name: str, variable: Any) -> None:
    shape = tuple(variable.shape)
    written = file.create_dataset(name, shape, variable.dtype)
    if not shape:
        written[...] = keras.ops.convert_to_numpy(variable)
        return
    rows = max(1, _NUMBERS_AT_ONCE * shape[0] // max(1, math.prod(shape)))
    for start in range(0, shape[0], rows):
        part = variable.value[start : start + rows]
        written[start : start + rows] = keras.ops.convert_to_numpy(part)


def save_average(checkpoints: Sequence[str | Path], path: str | Path, **options: Any) -> None:
    """Writes the mean that `average_checkpoints` takes, whole or not at all."""
    path = to_path(path)
    with _folder_beside(path) as folder:
        everything = Path(folder, path.name)
        average_checkpoints(checkpoints, everything, **options)
        _copy_weights(everything, path)


def _folder_beside(path: Path) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder on the run's own disk, named as `atomic_file` names files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(
        dir=path.parent, prefix=f".{os.getpid()}.", suffix=f".{path.name}"
    )


def _copy_weights(everything: Path, path: Path) -> None:
    """Copies a weight file without the optimiser and without a training's state and digest."""
    left_out = {"optimizer", TRAINING_GROUP}
    with (
        atomic_file(path) as temporary,
        h5py.File(everything) as old,
        h5py.File(temporary, "w") as new,
    ):
        new.attrs.update({key: old.attrs[key] for key in old.attrs.keys() - {DIGEST_ATTRIBUTE}})
        for key in old.keys() - left_out:
            old.copy(key, new)
