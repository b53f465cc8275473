"""Averages of weights: the mean of the last checkpoints often translates better than the best.

Files are those of `model.save_weights("….weights.h5")`.
"""

import contextlib
import math
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import keras
import ml_dtypes
import numpy as np

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import is_whole, require_bool, to_path
from keras_addnorm.basics.atomic import require_space
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.basics.integrity import (
    TRAINING_GROUP,
    DamagedFileError,
    has_weights_digest,
    open_weights,
    require_intact_weights,
    write_weights_digest,
)
from keras_addnorm.training.held_variables import VARIABLES_NAME

_SUFFIX = ".weights.h5"
_EPOCH_FILE = re.compile(r"epoch-(\d{4,})\.weights\.h5")


class LastCheckpoints(keras.callbacks.Callback):
    """Saves the weights after each epoch and keeps the last few, for averaging.

    Files are `epoch-0001.weights.h5`, … (epochs counted from 1), written elsewhere and renamed,
    so a file that is there is whole. A resumed run (`initial_epoch`) goes on with what an earlier
    one left: files of earlier epochs count among the kept. Files of later epochs belong to another
    run and are neither deleted nor listed in `paths`.

    Args:
        directory: Where the files go; made if missing.
        keep: How many to keep, at least 1.
        save: Called as `save(model, path)` to write a file, in place of `model.save_weights`.

    Attributes:
        paths: The kept files, oldest first: what `average_checkpoints` takes.

    Raises:
        ValueError: If `keep` is no int of at least 1, or `save` is no function.

    Example:
        >>> import pathlib, tempfile, keras
        >>> from keras_addnorm.training import LastCheckpoints
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> callback = LastCheckpoints(tempfile.mkdtemp(), keep=2)
        >>> callback.set_model(model)
        >>> for epoch in range(3):
        ...     callback.on_epoch_end(epoch)
        >>> [path.name for path in callback.paths]
        ['epoch-0002.weights.h5', 'epoch-0003.weights.h5']
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int = 5,
        save: Callable[[keras.Model, Path], None] | None = None,
    ) -> None:
        super().__init__()
        if not is_whole(keep, 1):
            raise ArgumentError("keep must be at least 1 checkpoint.", value=keep)
        self.directory = to_path(directory)
        self.keep = keep
        if save is not None and not callable(save):
            raise ArgumentError("save must be a function (model, path), or None.", value=save)
        self.save = _save_whole if save is None else save
        self.paths: list[Path] = []

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves this epoch, counted from 0, and deletes files that are no longer among the last."""
        path = self.directory / f"epoch-{epoch + 1:04d}{_SUFFIX}"
        self.save(self.model, path)
        until_now = self.files_until(epoch + 1)
        self.paths = until_now[-self.keep :]
        for old in until_now[: -self.keep]:
            old.unlink()

    def files_until(self, epoch: int) -> list[Path]:
        """Lists the checkpoints of the directory up to an epoch.

        Args:
            epoch: Counted from 1.

        Returns:
            The files, oldest first; none if the directory is missing.
        """
        if not self.directory.is_dir():
            return []
        numbered = [
            (int(match.group(1)), path)
            for path in self.directory.iterdir()
            if (match := _EPOCH_FILE.fullmatch(path.name))
        ]
        return [path for number, path in sorted(numbered) if number <= epoch]


def _save_whole(model: keras.Model, path: Path) -> None:
    with atomic_file(path) as temporary:
        require_space(temporary.parent, largest_file(stored_variables(model)))
        model.save_weights(temporary)


def largest_file(variables: Sequence[Any]) -> int:
    """Estimates the bytes of a weight file, rather too many of them."""
    numbers = sum(math.prod(variable.shape) * _bytes_of(variable.dtype) for variable in variables)
    return numbers + 2048 * len(variables) + 65536


def _bytes_of(dtype: Any) -> int:
    bits = re.search(r"\d+", keras.backend.standardize_dtype(dtype))
    return max(1, int(bits[0]) // 8) if bits else 1


def stored_variables(model: keras.Model) -> list[Any]:
    """Returns what Keras writes to a weight file: the model's variables and its optimiser's."""
    optimizer = getattr(model, "optimizer", None)
    return [*model.variables, *([] if optimizer is None else optimizer.variables)]


def average_checkpoints(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    verify: bool = True,
) -> dict[str, np.ndarray]:
    """Arithmetic mean of weight files, tensor by tensor.

    Every floating-point tensor, the optimizer's moments included if they are there, is summed in
    float64, divided by the number of files and rounded once to its own type. Anything else
    (counters, the state of random generators) has no mean and is taken from the last file.

    Args:
        paths: The `.weights.h5` files, at least one, all of the same model.
        output: Where to write the averaged file, or None to write none. It is a complete weight
            file for `model.load_weights`, and is renamed into place only when whole.
        verify: Whether checkpoints are compared with the digests that they carry.

    Returns:
        The averaged tensors by their path inside the file, such as `layers/dense/vars/0`.

    Raises:
        ValueError: If there is no path, a path does not end in `.weights.h5`, or the files differ
            in structure: the message names the tensors.
        DamagedFileError: If a file is not what was written, or cannot be read.
        FileNotFoundError: If a file is missing.

    Example:
        >>> import pathlib, tempfile, keras
        >>> from keras_addnorm.training import average_checkpoints
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        >>> for value, name in ((1.0, "a.weights.h5"), (4.0, "b.weights.h5")):
        ...     _ = model.layers[0].kernel.assign([[value]])
        ...     model.save_weights(folder / name)
        >>> mean = average_checkpoints([folder / "a.weights.h5", folder / "b.weights.h5"])
        >>> mean["layers/dense/vars/0"].tolist()
        [[2.5]]
    """
    require_bool(verify=verify)
    files = _checked_paths(paths)
    for path in files:
        with _open(path) as file:
            _tensors(file)
            if verify:
                require_intact_weights(file)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(h5py.File(path, "r")) for path in files]
        names = _common_names(opened, files)
        average = {name: _average([file[name] for file in opened]) for name in names}
    if output is not None:
        _write(average, template=files[-1], output=to_path(output))
    return average


def average_weights(model: keras.Model, paths: Sequence[str | os.PathLike[str]]) -> None:
    """Loads the mean of weight files into a model, as `average_checkpoints` computes it.

    The mean is for translation. An optimizer whose variables differ from those of the files (it has
    none yet, or is of another kind) is left alone, without a warning.

    Args:
        model: A built model of the architecture that wrote the files.
        paths: The `.weights.h5` files.

    Raises:
        TypeError: If it is no Keras model.
        ValueError: As for `average_checkpoints`.
        FileNotFoundError: As for `average_checkpoints`.

    Example:
        >>> import pathlib, tempfile, keras
        >>> from keras_addnorm.training import average_weights
        >>> path = pathlib.Path(tempfile.mkdtemp(), "only.weights.h5")
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        >>> _ = model.layers[0].kernel.assign([[3.0]])
        >>> model.save_weights(path)
        >>> _ = model.layers[0].kernel.assign([[0.0]])
        >>> average_weights(model, [path])
        >>> model.get_weights()[0].tolist()
        [[3.0]]
    """
    if not isinstance(model, keras.Model):
        raise ArgumentTypeError(expected="a built Keras model", value=model)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, f"average{_SUFFIX}")
        average_checkpoints(paths, output)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Skipping variable loading for optimizer")
            model.load_weights(output)


def _checked_paths(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    if isinstance(paths, str | os.PathLike):
        raise ArgumentError("paths must be a list of files.", received=f"the single path {paths}")
    if not isinstance(paths, Iterable):
        raise ArgumentError("paths must be a list of files.", value=paths)
    files = [Path(path) for path in paths]
    if not files:
        raise ValueError("There is nothing to average: paths is empty.")
    for path in files:
        if not path.name.endswith(_SUFFIX):
            raise ArgumentError(
                f"A checkpoint to average ends in {_SUFFIX!r}, as model.save_weights writes it.",
                received=str(path),
            )
        if not path.is_file():
            raise FileNotFoundError(f"There is no checkpoint {path}.")
    return files


@contextlib.contextmanager
def _open(path: Path) -> Iterator[h5py.File]:
    """Opens a file to check it; a damaged one is refused by its name."""
    try:
        with open_weights(path) as file:
            yield file
    except DamagedFileError as error:
        raise DamagedFileError(
            f"The checkpoint '{path}' is damaged: {error}. Copy it again from where it is whole, "
            "or leave it out, and take the mean of the others."
        ) from error


def _tensors(file: h5py.File) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every tensor of a file, by path."""
    found: dict[str, tuple[tuple[int, ...], str]] = {}

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith(f"{TRAINING_GROUP}/"):
            found[name] = (tuple(item.shape), str(item.attrs.get("dtype", item.dtype)))

    file.visititems(visit)
    return found


def _common_names(opened: list[h5py.File], files: list[Path]) -> list[str]:
    """Paths of the tensors, if they are the same in all files."""
    first = _tensors(opened[0])
    for file, path in zip(opened[1:], files[1:], strict=True):
        other = _tensors(file)
        different = sorted(
            name for name in first.keys() | other.keys() if first.get(name) != other.get(name)
        )
        if different:
            lines = [
                f"  {name}: {_described(first.get(name))} | {_described(other.get(name))}"
                for name in different[:8]
            ]
            more = [f"  … and {len(different) - 8} more"] if len(different) > 8 else []
            raise ValueError(
                "Only checkpoints of one model can be averaged, and these two differ in "
                f"{len(different)} tensors ({files[0]} | {path}):\n" + "\n".join(lines + more)
            )
    return list(first)


def _described(tensor: tuple[tuple[int, ...], str] | None) -> str:
    return "missing" if tensor is None else f"{tensor[1]} {tensor[0]}"


def _read(tensor: h5py.Dataset) -> np.ndarray:
    """The tensor as an array; Keras marks bfloat16, which HDF5 does not know, by an attribute."""
    if tensor.attrs.get("dtype") == "bfloat16":
        return np.array(tensor, dtype=ml_dtypes.bfloat16)
    return np.array(tensor)


def _is_floating(dtype: np.dtype) -> bool:
    return np.issubdtype(dtype, np.floating) or dtype == ml_dtypes.bfloat16


def _average(tensors: list[h5py.Dataset]) -> np.ndarray:
    last = _read(tensors[-1])
    if not _is_floating(last.dtype):
        return last
    # One file at a time: the mean of a hundred checkpoints needs no more memory than of two.
    total = np.zeros(last.shape, np.float64)
    for tensor in tensors:
        total += _read(tensor).astype(np.float64)
    return (total / len(tensors)).astype(last.dtype)


def _write(average: dict[str, np.ndarray], template: Path, output: Path) -> None:
    """Writes a copy of a weight file with other values in it."""
    if not output.name.endswith(_SUFFIX):
        raise ValueError(f"output must end in {_SUFFIX!r}, or Keras cannot load it: {output}.")
    with atomic_file(output) as temporary:
        size = template.stat().st_size
        require_space(temporary.parent, size, size)  # Of a run, its weights are copied then.
        shutil.copyfile(template, temporary)
        with h5py.File(temporary, "r+") as file:
            for name, value in average.items():
                file[name][...] = value
            # What one training held is not what the mean holds.
            file.pop(VARIABLES_NAME, None)
            if has_weights_digest(file):
                write_weights_digest(file)
