"""The variables of a training in its checkpoint, each with the value that it has in memory.

What a layer saves need not be what it holds. With LoRA Keras saves the merged kernel alone; with
LoRA on a quantised kernel it rounds the sum once more; the seeds of dropout are in no weight file.
So a checkpoint says for each variable where in the file its value is, and holds those values
besides that the weight file does not have.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import keras
import ml_dtypes  # NumPy knows the name bfloat16 by it.
import numpy as np

from keras_addnorm.basics.argument_checks import is_bool, is_whole
from keras_addnorm.basics.atomic import require_space
from keras_addnorm.basics.integrity import MOST_AXES, TRAINING_GROUP
from keras_addnorm.basics.text import parse_json
from keras_addnorm.distribution import whole_values

VARIABLES_NAME = f"{TRAINING_GROUP}/variables"
"""The group of a checkpoint that has the values of all variables as they are in memory."""

_TABLE = f"{VARIABLES_NAME}/places"
_SEED = "seed_generator_state"


@dataclass(frozen=True)
class VariablePlace:
    """Where in a checkpoint the value of a variable is.

    Attributes:
        path: The variable's path, without the numbers that Keras gives to the layers of a process.
        shape: Its shape.
        dtype: Its type.
        data_set: The name of the data set whose bytes are its value.
        of_optimizer: Whether the optimiser has it, and not the model.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    data_set: str
    of_optimizer: bool

    def fits(self, variable: Any, of_optimizer: bool) -> bool:
        """Tells whether a variable can be the one that was saved, whatever its path."""
        return (
            self.shape == tuple(variable.shape)
            and self.of_optimizer == of_optimizer
            and ("float" in self.dtype) == ("float" in _dtype(variable))
            # Optimisers name their variables by layers.
            and (of_optimizer or _name(self.path) == _name(_path(variable)))
        )

    def is_in(self, file: h5py.File) -> bool:
        """Tells whether a file has the value; of one from outside, all may be anything."""
        texts = (self.path, self.dtype, self.data_set)
        if not all(isinstance(text, str) for text in texts):
            return False
        if not all(is_whole(size, 0) for size in self.shape) or not is_bool(self.of_optimizer):
            return False
        if len(self.shape) > MOST_AXES:
            return False
        try:
            dtype, item = np.dtype(self.dtype), file.get(self.data_set)
        except (TypeError, ValueError):
            return False
        is_of_numbers = dtype.kind in "biuf" or dtype.name in ml_dtypes.__all__
        is_there = isinstance(item, h5py.Dataset) and item.dtype.kind in "biufV"
        return is_of_numbers and is_there and item.nbytes == math.prod(self.shape) * dtype.itemsize

    def value(self, file: h5py.File) -> np.ndarray:
        """Reads the value."""
        return np.frombuffer(_bytes(file[self.data_set]), self.dtype).reshape(self.shape)


def write_variables(file: h5py.File, model: keras.Model, folder: Path) -> None:
    """Adds to a weight file what Keras left out, and where each variable's value is."""
    saved = {_digest(_bytes(item)): name for name, item in _data_sets(file)}
    places, missing = [], {}
    for index, (variable, of_optimizer) in enumerate(_variables(model)):
        value = keras.ops.convert_to_numpy(variable)
        digest = _digest(value.tobytes())
        if digest not in saved:
            saved[digest] = f"{VARIABLES_NAME}/{index}"
            missing[saved[digest]] = variable
        places.append(
            VariablePlace(
                _path(variable), value.shape, _dtype(variable), saved[digest], of_optimizer
            )
        )
    table = json.dumps([vars(place) for place in places]).encode()
    numbers = sum(math.prod(variable.shape) for variable in missing.values())
    require_space(folder, 8 * numbers + 2048 * len(missing) + len(table))
    for name, variable in missing.items():
        content = keras.ops.convert_to_numpy(variable).tobytes()
        file.create_dataset(name, data=np.frombuffer(content, np.uint8))
    file.create_dataset(_TABLE, data=np.frombuffer(table, np.uint8))


def read_places(file: h5py.File) -> list[VariablePlace] | None:
    """Reads where the variables are; None in a file of a version that did not write it."""
    if _TABLE not in file:
        return None
    places = [
        VariablePlace(**{**place, "shape": tuple(place["shape"])})
        for place in parse_json(bytes(file[_TABLE][()]))
    ]
    if wrong := [place for place in places if not place.is_in(file)]:
        raise ValueError(f"it says of a variable what it does not have: {wrong[0]!r:.200}")
    return places


def matched(
    places: Sequence[VariablePlace], model: keras.Model, path: Any
) -> list[tuple[VariablePlace, Any]]:
    """Finds the variable of each place, by path, or in order where layers have other names now."""
    variables = list(_variables(model))
    by_path = dict(zip(_distinct(place.path for place in places), places, strict=True))
    paths = _distinct(_path(variable) for variable, _ in variables)
    chosen = [by_path[one] for one in paths] if by_path.keys() == set(paths) else list(places)
    if len(chosen) != len(variables) or not all(
        place.fits(*one) for place, one in zip(chosen, variables, strict=True)
    ):
        raise ValueError(
            f"The checkpoint '{path}' is of another model or optimiser: "
            f"{_difference(places, model)}. Expected a model with the layers, the LoRA and the "
            "quantisation that it was written with, compiled with the same optimiser. Make it as "
            "it was, or start a new training: load the weights with `model.load_weights`, and "
            "compile anew."
        )
    return [(place, variable) for place, (variable, _) in zip(chosen, variables, strict=True)]


def assign(pairs: Iterable[tuple[VariablePlace, Any]], file: h5py.File) -> None:
    """Gives variables the values that they had."""
    for place, variable in pairs:
        # Keras counts steps and random numbers in another type on each backend.
        variable.assign(place.value(file).astype(_dtype(variable)))


def not_held(file: h5py.File, model: keras.Model) -> list[str]:
    """Finds what a weight file without places does not hold of a model that has loaded it.

    Args:
        file: The weight file.
        model: The model, which has just loaded it.

    Returns:
        The paths of its variables whose values are nowhere in the file, those of random generators
        apart: these follow from the seed.
    """
    saved = {_digest(_bytes(item)) for _, item in _data_sets(file)}
    with whole_values(model.variables):
        return [
            variable.path
            for variable in model.variables
            if not variable.path.endswith(_SEED)
            and _digest(keras.ops.convert_to_numpy(variable).tobytes()) not in saved
        ]


def random_states(model: keras.Model) -> list[Any]:
    """Returns the variables of the random generators of a model."""
    return [variable for variable in model.variables if variable.path.endswith(_SEED)]


def _variables(model: keras.Model) -> Iterator[tuple[Any, bool]]:
    """Each variable, and whether it is the optimiser's."""
    for variable in model.variables:
        yield variable, False
    for variable in model.optimizer.variables:
        yield variable, True


def _data_sets(file: h5py.File) -> list[tuple[str, h5py.Dataset]]:
    """The data sets that Keras has written."""
    found: list[tuple[str, h5py.Dataset]] = []
    file.visititems(
        lambda name, item: (
            found.append((name, item))
            if isinstance(item, h5py.Dataset) and not name.startswith(f"{TRAINING_GROUP}/")
            else None
        )
    )
    return found


def _bytes(item: h5py.Dataset) -> bytes:
    return np.asarray(item[()]).tobytes()


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _dtype(variable: Any) -> str:
    return str(keras.backend.standardize_dtype(variable.dtype))


def _path(variable: Any) -> str:
    return re.sub(r"_\d+", "", variable.path)


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _distinct(paths: Iterable[str]) -> list[tuple[str, int]]:
    """Paths with a number, as several variables may have one path."""
    seen: Counter[str] = Counter()
    found = []
    for path in paths:
        found.append((path, seen[path]))
        seen[path] += 1
    return found


def _difference(places: Sequence[VariablePlace], model: keras.Model) -> str:
    """What only one of the two has."""
    before = Counter(f"{place.path} {place.shape}" for place in places)
    now = Counter(f"{_path(v)} {tuple(v.shape)}" for v, _ in _variables(model))
    said = []
    for who, only in (("the checkpoint", before - now), ("the model", now - before)):
        names = list(only.elements())
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        said.append(f"{who} alone has {', '.join(names[:3]) or 'nothing'}{more}")
    return "; ".join(said)
