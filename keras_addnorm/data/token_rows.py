"""The token ids of many sentences, one after the other: in memory, or mapped from files."""

from __future__ import annotations

import abc
import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.basics.integrity import DamagedFileError

# What is computed for all sentences is computed for so many at a time.
_ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class TokenRows:
    """The ids of all sentences of one language, one after the other.

    Attributes:
        ids: `(tokens,)` uint16 or int32.
        offsets: `(sentences + 1,)` int64: where each sentence begins, and the end of the last.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]] | Sequence[np.ndarray]) -> TokenRows:
        """Concatenates the ids of each sentence."""
        written = MemoryRows(np.dtype(np.int32))
        written.add(rows)
        return written.finish()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, start: int, end: int) -> list[list[int]]:
        """The ids of the sentences from `start` to before `end`, as Python lists."""
        offsets = self.offsets[start : end + 1].tolist()
        ids = self.ids[offsets[0] : offsets[-1]].tolist()
        return [ids[a - offsets[0] : b - offsets[0]] for a, b in itertools.pairwise(offsets)]

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each sentence, int32."""
        lengths = np.empty(len(self), np.int32)
        for start in range(0, len(self), _ROWS_AT_ONCE):
            some = self.offsets[start : start + _ROWS_AT_ONCE + 1]
            lengths[start : start + _ROWS_AT_ONCE] = np.diff(some)
        return lengths

    def lengths_of(self, members: np.ndarray) -> np.ndarray:
        """The number of tokens of the sentences `members`."""
        sizes: np.ndarray = self.offsets[members + 1] - self.offsets[members]
        return sizes

    def padded(
        self,
        members: np.ndarray,
        shape: tuple[int, int],
        pad_id: int,
        before: Sequence[int],
        behind: Sequence[int],
    ) -> np.ndarray:
        """An array of padding with one sentence a row, between the ids `before` and `behind`."""
        out = np.full(shape, pad_id, np.int32)
        starts, sizes = self.offsets[members], self.lengths_of(members)
        shift, rows = len(before), np.arange(len(members))[:, None]
        out[: len(members), :shift] = before
        out[rows, (sizes + shift)[:, None] + np.arange(len(behind))] = behind
        row = np.repeat(np.arange(len(members)), sizes)
        column = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        out[row, column + shift] = self.ids[np.repeat(starts, sizes) + column]
        return out

    def update(self, digest: Any) -> None:
        """Adds offsets and ids to a digest, the same in whatever type ids are kept."""
        for array, dtype in ((self.offsets, np.int64), (self.ids, np.int32)):
            for start in range(0, len(array), _ROWS_AT_ONCE):
                digest.update(np.ascontiguousarray(array[start : start + _ROWS_AT_ONCE], dtype))


def type_of_ids(vocabulary_size: int) -> np.dtype[Any]:
    """The smallest type that holds the ids of a vocabulary: two bytes up to 65,536 pieces."""
    return np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.int32)


class RowsWriter(abc.ABC):
    """Takes the ids of sentences, some at a time.

    Args:
        dtype: The type of the ids.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._end = 0

    def add(self, rows: Sequence[Sequence[int]] | Sequence[np.ndarray]) -> None:
        """Appends the ids of each sentence."""
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(itertools.chain.from_iterable(rows), self._dtype, int(sizes.sum()))
        self.append(ids, self._end + np.cumsum(sizes))
        self._end += len(ids)

    @abc.abstractmethod
    def append(self, ids: np.ndarray, ends: np.ndarray) -> None:
        """Appends ids, and where each of the sentences that they are of ends."""

    @abc.abstractmethod
    def finish(self) -> TokenRows:
        """What has been added."""


class MemoryRows(RowsWriter):
    """Keeps the ids in memory."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        super().__init__(dtype)
        self._ids = [np.zeros(0, dtype)]
        self._offsets = [np.zeros(1, np.int64)]

    def append(self, ids: np.ndarray, ends: np.ndarray) -> None:
        """As they are."""
        self._ids.append(ids)
        self._offsets.append(ends)

    def finish(self) -> TokenRows:
        """One array of each."""
        return TokenRows(np.concatenate(self._ids), np.concatenate(self._offsets))


class FileRows(RowsWriter):
    """Writes two files in NumPy's format: `<name>.npy` and `<name>_offsets.npy`.

    Args:
        folder: Where to write.
        name: The beginning of their names.
        dtype: The type of the ids.
    """

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any]) -> None:
        super().__init__(dtype)
        self._folder, self._name = folder, name
        paths = _paths(folder, name)
        self._ids = _GrowingFile(paths[0], dtype)
        self._offsets = _GrowingFile(paths[1], np.dtype(np.int64))
        self._offsets.append(np.zeros(1, np.int64))

    def append(self, ids: np.ndarray, ends: np.ndarray) -> None:
        """To the ends of both files."""
        self._ids.append(ids)
        self._offsets.append(ends)

    def finish(self) -> TokenRows:
        """Maps the files, whose headers now say how long they are."""
        self._ids.close()
        self._offsets.close()
        return map_rows(self._folder, self._name)


class _GrowingFile:
    """An array of one axis in NumPy's format, whose length is known at the end."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._file = path.open("wb")
        self._dtype = dtype
        self._count = 0
        self._start = self._write_header()

    def append(self, array: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(array, self._dtype).data)
        self._count += len(array)

    def close(self) -> None:
        with self._file:
            self._file.seek(0)
            # NumPy leaves room in a header for any length, so that the numbers stay where they are.
            if self._write_header() != self._start:
                raise RuntimeError("The header of an array has another size for another length.")

    def _write_header(self) -> int:
        shape = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._count,)}
        np.lib.format.write_array_header_1_0(self._file, shape)
        return self._file.tell()


def map_rows(folder: Path, name: str) -> TokenRows:
    """Maps the files that `FileRows` wrote.

    Args:
        folder: Where they are.
        name: The beginning of their names.

    Returns:
        The ids, which are read from the disk when they are needed.

    Raises:
        ValueError: If a file is missing, or the two do not hold sentences.
    """
    paths = _paths(folder, name)
    try:
        ids, offsets = (_mapped(path) for path in paths)
    except Exception as error:  # What a header without sense leads to.
        raise DamagedFileError(
            f"The token ids {str(paths[0])!r} cannot be read: {error}."
        ) from error
    if not (
        ids.dtype in (np.dtype(np.uint16), np.dtype(np.int32))
        and offsets.dtype == np.int64
        and ids.ndim == offsets.ndim == 1
        and len(offsets)
        and offsets[0] == 0
        and offsets[-1] == len(ids)
        and all(_rises(offsets[start : start + _ROWS_AT_ONCE + 1]) for start in _starts(offsets))
    ):
        raise ValueError(
            f"The token ids {str(paths[0])!r} and {paths[1].name!r} are damaged. Expected ids, and "
            f"rising offsets from 0 to their number, {ids.size:,}."
        )
    return TokenRows(ids, offsets)


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.npy", folder / f"{name}_offsets.npy"


def _mapped(path: Path) -> np.ndarray:
    array: np.ndarray = np.load(path, mmap_mode="r" if _has_data(path) else None)
    # A file that has grown behind its array is not what was written.
    expected = getattr(array, "offset", path.stat().st_size - array.nbytes) + array.nbytes
    if os.path.getsize(path) != expected:
        raise ValueError(f"{path.name} has {os.path.getsize(path):,} bytes, not {expected:,}")
    return array


def _has_data(path: Path) -> bool:
    """Whether there is something behind the header: nothing cannot be mapped."""
    with to_file(path).open("rb") as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"{path.name} is of version {version} of NumPy's format, not 1.0")
        (count, *_), *_ = np.lib.format.read_array_header_1_0(file)
        return bool(count)


def _starts(array: np.ndarray) -> Iterable[int]:
    return range(0, len(array), _ROWS_AT_ONCE)


def _rises(offsets: np.ndarray) -> bool:
    return bool((offsets[1:] >= offsets[:-1]).all())
