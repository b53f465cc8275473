"""Reads and writes NumPy's `.npz`, as Marian has its models."""

from __future__ import annotations

import io
import itertools
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from keras_addnorm.basics import atomic_file
from keras_addnorm.interop.tensor_files.stored_tensor import (
    DamagedFileError,
    StoredTensor,
    require_file_of_tensors,
    require_intact,
)
from keras_addnorm.interop.tensor_files.zip_members import MemberSpan, member_place


def read_npz(path: Path) -> dict[str, StoredTensor]:
    """Return the arrays of an `.npz` file by name.

    Args:
        path: The file.

    Returns:
        The arrays.

    Raises:
        FileNotFoundError: If there is no such file.
        DamagedFileError: If it is cut off, compressed, or no such file.
    """
    require_file_of_tensors(path)
    tensors = {}
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            places = [(info, member_place(file, info)) for info in archive.infolist()]
            _require_apart([place for _, place in places])
            for info, place in places:
                file.seek(place.start)
                read_header = {
                    (1, 0): npy.read_array_header_1_0,
                    (2, 0): npy.read_array_header_2_0,
                }[npy.read_magic(file)]
                shape, is_fortran, dtype = read_header(file)
                if dtype.hasobject:
                    raise ValueError(f"its array '{info.filename}' holds Python objects")
                tensor = StoredTensor(
                    path,
                    dtype,
                    shape,
                    file.tell(),
                    _columns_first(shape) if is_fortran else None,
                )
                if tensor.end > place.end:
                    raise ValueError(f"its array '{info.filename}' is longer than its member")
                name = info.filename.removesuffix(".npy")
                if name in tensors:
                    raise ValueError(f"two of its arrays are called '{name:.80}'")
                tensors[name] = tensor
    except Exception as error:  # What a header without sense leads to.
        raise DamagedFileError(
            f"'{path}' cannot be read as an .npz file: {error}. Expected a zip of arrays that are "
            "not compressed, as Marian and numpy.savez write it. Copy or download it again."
        ) from error
    require_intact(path, tensors)
    return tensors


def write_npz(path: Path, names: Iterable[str], read: Callable[[str], np.ndarray]) -> None:
    """Write an `.npz`, one array after the other.

    `numpy.savez` reserves room for sizes beyond 4 GiB in each header, which Marian does not read.

    Args:
        path: The file, which appears as a whole.
        names: The names of the arrays.
        read: Returns an array by its name.
    """
    with atomic_file(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in names:
            content = io.BytesIO()
            npy.write_array(content, np.ascontiguousarray(read(name)), version=(1, 0))
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getbuffer())


def _require_apart(places: list[MemberSpan]) -> None:
    """Refuse members that share bytes: Python reads the header of each, which can be long."""
    ordered = sorted(places, key=lambda place: place.start)
    if any(first.end > second.start for first, second in itertools.pairwise(ordered)):
        raise ValueError("two of its arrays share bytes")


def _columns_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(step) for step in np.cumprod([1, *shape[:-1]])) if shape else ()
