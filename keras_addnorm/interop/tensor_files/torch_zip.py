"""Reads the tensors of PyTorch's `.bin` and `.pt` files, without torch and without running code.

Such a file is a zip: `data.pkl` is a pickle of the tensors' names, types, shapes and strides, and
`data/<number>` are their numbers. A pickle may name any function of Python and have it called.
This reader knows the few names that tensors and plain values need, and refuses every other.

Reference: https://docs.pytorch.org/docs/stable/notes/serialization.html
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import pickletools
import reprlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from keras_addnorm.basics.errors import shown
from keras_addnorm.basics.integrity import MOST_AXES
from keras_addnorm.interop.tensor_files.pickle_keys import require_small_keys
from keras_addnorm.interop.tensor_files.stored_tensor import (
    DamagedFileError,
    StoredTensor,
    require_file_of_tensors,
    require_intact,
)
from keras_addnorm.interop.tensor_files.zip_members import MemberSpan, member_place

_ZIP = b"PK\x03\x04"

_STORAGES = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}


class RefusedFileError(ValueError):
    """A file asks for more than tensors and plain values, or has a format that is not read."""

    def __str__(self) -> str:
        return shown(super().__str__())


class _Fixed:
    """What a pickle may name, and not change: it can set attributes of all that it names."""

    def __setstate__(self, state: object) -> None:
        raise RefusedFileError(
            "A file of PyTorch changes what it is read with. Expected tensors, numbers, texts, "
            "lists and dicts only. Do not trust the file."
        )


@dataclasses.dataclass(frozen=True)
class _StorageType(_Fixed):
    """What stands for `torch.FloatStorage` and the like."""

    dtype: np.dtype


@dataclasses.dataclass(frozen=True)
class _Storage(_Fixed):
    """The numbers of one or several tensors, in a member of the zip."""

    path: Path
    dtype: np.dtype
    place: MemberSpan


class _RebuildTensor(_Fixed):
    """What stands for `torch._utils._rebuild_tensor_v2`."""

    def __call__(
        self,
        storage: _Storage,
        first: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *_: Any,
    ) -> StoredTensor:
        _require_few(shape, strides)
        place = storage.place
        offset = place.start + first * storage.dtype.itemsize
        tensor = StoredTensor(storage.path, storage.dtype, tuple(shape), offset, tuple(strides))
        if first < 0 or tensor.end > place.end:
            raise DamagedFileError(
                f"'{storage.path}' is damaged: a tensor of the shape {tensor.shape} lies outside "
                f"the {place.end - place.start} bytes of its numbers. Copy or download it again."
            )
        return tensor


class _RebuildParameter(_Fixed):
    """What stands for `torch._utils._rebuild_parameter`."""

    def __call__(self, data: StoredTensor, *_: Any) -> StoredTensor:
        return data


class _Size(_Fixed):
    """What stands for `torch.Size`."""

    def __call__(self, dimensions: Any) -> tuple[int, ...]:
        _require_few(dimensions)
        return tuple(dimensions)


class _Dict(dict[Any, Any]):
    """What stands for `collections.OrderedDict`: what is set of it beside its items is left out."""

    def __init__(self) -> None:
        super().__init__()

    def __setstate__(self, state: object) -> None:
        """Keep nothing: modules note their versions there."""


class Options:
    """What stands for `argparse.Namespace`: fairseq and OpenNMT-py keep a training's options so."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Not copied: a pickle can set one large dict again and again.
        self.__dict__ = state


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Dict,
    ("argparse", "Namespace"): Options,
    ("torch", "Size"): _Size(),
    ("torch._utils", "_rebuild_tensor_v2"): _RebuildTensor(),
    ("torch._utils", "_rebuild_parameter"): _RebuildParameter(),
    **{("torch", name): _StorageType(dtype) for name, dtype in _STORAGES.items()},
}
# Of the part of a file that is no numbers: names, shapes, options, lists of pieces. Each byte can
# make an object of a hundred, and each object hold one of the others many times.
_LONGEST_PICKLE = 1 << 26
_MOST_OPERATIONS = _MOST_VALUES = 1 << 21
_DEEPEST, _LONGEST_NAME = 100, 2000
_CHARACTERS_OF_A_VALUE = 64


def read_torch(path: Path) -> Any:
    """Return what a PyTorch file holds, with a `StoredTensor` for each tensor.

    Args:
        path: The file.

    Returns:
        The object: mostly a dict of tensors by name, or of several such.

    Raises:
        FileNotFoundError: If there is no such file.
        DamagedFileError: If it is cut off, or no PyTorch file.
        ValueError: If it was written before PyTorch 1.6, or asks for more than tensors and plain
            values.
    """
    require_file_of_tensors(path)
    _require_zip(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            pickles = [name for name in names if name.endswith("/data.pkl")]
            if not pickles:
                raise DamagedFileError(
                    f"'{path}' is a zip, but not of PyTorch. Expected a member 'data.pkl'. "
                    f"Received: {', '.join(names[:5])}"
                )
            folder = pickles[0].removesuffix("data.pkl")
            _require_little_endian(path, archive, folder)
            with path.open("rb") as file:
                places = {
                    info.filename.removeprefix(f"{folder}data/"): member_place(file, info)
                    for info in archive.infolist()
                    if info.filename.startswith(f"{folder}data/")
                }
            if archive.getinfo(pickles[0]).file_size > _LONGEST_PICKLE:
                raise DamagedFileError(
                    f"'{path}' is no file of tensors. Expected at most {_LONGEST_PICKLE} bytes of "
                    f"names and shapes. Received: {archive.getinfo(pickles[0]).file_size}"
                )
            content = archive.read(pickles[0])
    except (RefusedFileError, DamagedFileError):
        raise
    except Exception as error:  # What a directory without sense leads to.
        raise DamagedFileError(
            f"'{path}' is cut off or damaged: {error}. Expected a whole zip. Copy or download it "
            "again."
        ) from error
    try:
        _require_few_operations(path, content)
        require_small_keys(path, content)
        tree = _RestrictedUnpickler(io.BytesIO(content), path, places).load()
        _require_tree(path, tree)
        return tree
    except (RefusedFileError, DamagedFileError):
        raise
    except Exception as error:  # What a pickle without sense leads to.
        raise DamagedFileError(
            f"'{path}' is damaged: {type(error).__name__}: {error}. Expected the names and shapes "
            "of tensors. Copy or download it again."
        ) from error


def tensors_in(tree: Any, prefix: str = "") -> dict[str, StoredTensor]:
    """Return the tensors of nested dicts, by their names joined with dots.

    Args:
        tree: What `read_torch` returned.
        prefix: What all names begin with.

    Returns:
        The tensors.
    """
    found: dict[str, StoredTensor] = {}
    if not isinstance(tree, Mapping):
        return found
    for key, value in tree.items():
        if not isinstance(key, str | int) or len(prefix) > _LONGEST_NAME:
            raise DamagedFileError(
                "A file of PyTorch has no names of tensors. Expected dicts by texts of at most "
                f"{_LONGEST_NAME} characters. Received: a {type(key).__name__} below "
                f"'{prefix:.80}'. Copy or download it again."
            )
        name = f"{prefix}{key}"
        if isinstance(value, StoredTensor):
            found[name] = value
        else:
            found |= tensors_in(value, f"{name}.")
    if not prefix:
        require_intact_files(found)
    return found


def require_intact_files(tensors: Mapping[str, StoredTensor]) -> None:
    """Refuse tensors that go on behind the end of their file."""
    for path in {tensor.path for tensor in tensors.values()}:
        require_intact(path, {name: each for name, each in tensors.items() if each.path == path})


def _require_few(*numbers: Any) -> None:
    """Refuse a shape of very many axes, which would be copied for each tensor."""
    if any(len(each) > MOST_AXES for each in numbers):
        raise DamagedFileError(
            f"A tensor of a PyTorch file has too many axes. Expected at most {MOST_AXES}. Copy or "
            "download the file again."
        )


def _require_few_operations(path: Path, content: bytes) -> None:
    """Refuse a pickle that makes more objects than a file of tensors has, before any is made."""
    highest = 0
    for count, (operation, value, _) in enumerate(pickletools.genops(content)):
        # The place that an object is kept at, which memory is made for.
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and isinstance(value, int):
            highest = max(highest, value)
        if max(count, highest) >= _MOST_OPERATIONS:
            raise DamagedFileError(
                f"'{path}' is no file of tensors. Expected names and shapes that take at most "
                f"{_MOST_OPERATIONS} operations to make. Received more. Do not trust the file."
            )


def _require_tree(path: Path, tree: Any) -> None:
    """Refuse what is not a tree of moderate size: dicts that hold themselves, or one many times.

    A text counts as one value for each 64 of its characters.
    """
    sizes: dict[int, tuple[int, int]] = {}  # values and levels of each container that is done
    open_ones: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(tree, False)]
    while waiting:
        value, is_done = waiting.pop()
        key = id(value)
        # What many hold is looked through once.
        inner = None if key in sizes else _inner(value)
        if inner is None:
            continue
        if is_done:
            open_ones.remove(key)
            found = [sizes[id(each)] for each in inner if id(each) in sizes]
            # A long text can be held many times, too, and be shown each time.
            texts = sum(len(each) for each in inner if isinstance(each, str | bytes))
            size = len(inner) + texts // _CHARACTERS_OF_A_VALUE + sum(values for values, _ in found)
            depth = 1 + max((levels for _, levels in found), default=0)
            sizes[key] = size, depth
            is_small = size <= _MOST_VALUES and depth <= _DEEPEST
            reason = "" if is_small else "more"
        else:
            reason = "one that holds itself" if key in open_ones else ""
            open_ones.add(key)
            waiting.append((value, True))
            waiting += [(each, False) for each in inner]
        if reason:
            raise DamagedFileError(
                f"'{path}' is no file of tensors. Expected lists and dicts of at most "
                f"{_MOST_VALUES} values on {_DEEPEST} levels. Received: {reason}. Do not trust the "
                "file."
            )


def _inner(value: Any) -> list[Any] | None:
    """Return what a container holds; `None` of other values."""
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    if isinstance(value, Options):
        return list(vars(value).values())
    return list(value) if isinstance(value, list | tuple | set | frozenset) else None


class _RestrictedUnpickler(pickle.Unpickler):
    """Reads a pickle that may name nothing but what stands in the list."""

    def __init__(self, file: io.BytesIO, path: Path, places: Mapping[str, MemberSpan]) -> None:
        super().__init__(file)
        self._path = path
        self._places = places

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise RefusedFileError(
            f"'{self._path}' asks for the Python object '{module}.{name}' while it is read. "
            "Expected tensors, numbers, texts, lists and dicts only: anything else could run code. "
            "If you trust the file, load it with torch and save its tensors alone: "
            "torch.save(model.state_dict(), 'weights.pt')."
        )

    def persistent_load(self, pid: Any) -> _Storage:
        kind, storage_type, key, *_ = pid
        is_named = isinstance(kind, str) and kind == "storage" and isinstance(key, str)
        if not is_named or not isinstance(storage_type, _StorageType):
            raise RefusedFileError(
                f"'{self._path}' refers to something that is no storage of numbers. Expected "
                f"storages only. Received: {reprlib.repr(pid):.80}"
            )
        return _Storage(self._path, storage_type.dtype, self._places[key])


def _require_zip(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(len(_ZIP))
    if start == _ZIP:
        return
    if start[:1] == b"\x80":
        raise RefusedFileError(
            f"'{path}' has the format that PyTorch had before 1.6, which is one pickle and not a "
            "zip, and is not read here. Convert it once, with torch: torch.save(torch.load("
            f"'{path.name}', weights_only=True), 'weights.pt')."
        )
    raise DamagedFileError(
        f"'{path}' is no PyTorch file. Expected a zip. Received: a file that begins with "
        f"{start!r}. Copy or download it again."
    )


def _require_little_endian(path: Path, archive: zipfile.ZipFile, folder: str) -> None:
    name = f"{folder}byteorder"
    if name in archive.namelist() and archive.open(name).read(len(b"little")) != b"little":
        raise RefusedFileError(
            f"'{path}' was written on a big-endian machine. Expected little-endian numbers. Save "
            "it as safetensors there."
        )
