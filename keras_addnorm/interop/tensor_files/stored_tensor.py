"""`StoredTensor`: where a tensor stands in a file; its numbers are read when they are asked for."""

from __future__ import annotations

import dataclasses
import math
import os
import reprlib
from pathlib import Path
from typing import ClassVar

import numpy as np

from keras_addnorm.basics.argument_checks import has_file
from keras_addnorm.basics.integrity import MOST_AXES, DamagedFileError

_POINTER = b"version https://git-lfs"
_TOO_MANY = 1 << 63  # bytes of one array
_NUMBERS_AT_ONCE = 1 << 22


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file.

    Attributes:
        path: The file.
        dtype: NumPy's type of its numbers, little-endian; bfloat16 is that of `ml_dtypes`.
        shape: Its shape.
        offset: The byte of the file that it begins at.
        strides: Numbers between two neighbours on each axis; `None` for the last axis innermost.
    """

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...] | None = None

    is_computed: ClassVar[bool] = False
    """Whether `read` returns other numbers than those at this place of the file."""

    def __post_init__(self) -> None:
        # A file may say anything, and strides lead to any place in memory.
        numbers = (self.offset, *self.shape, *(self.strides or ()))
        cannot_be = (
            any(type(number) is not int or number < 0 for number in numbers)
            or len(self.shape if self.strides is None else self.strides) != len(self.shape)
            or self.dtype.itemsize == 0
            or len(self.shape) > MOST_AXES
            # Sizes beside a 0 need no bytes, and overflow all the same.
            or math.prod(size or 1 for size in self.shape) * self.dtype.itemsize >= _TOO_MANY
        )
        if cannot_be:
            raise DamagedFileError(
                f"'{self.path}' describes a tensor that cannot be. Expected a place, a shape and "
                f"strides of whole numbers that are not negative, at most {MOST_AXES} axes, and "
                f"fewer bytes than there can be. Received: place {self.offset!r}, shape "
                f"{reprlib.repr(self.shape):.80}, strides {reprlib.repr(self.strides):.80}, "
                f"{self.dtype}. Copy or download the file again."
            )
        if math.prod(self.shape) * self.dtype.itemsize > self.end - self.offset:
            raise DamagedFileError(
                f"'{self.path}' describes a tensor that is larger than its numbers. Expected each "
                f"number once. Received: shape {self.shape}, strides {self.strides}. Save a copy "
                "of the tensor that has its numbers side by side."
            )

    def __setstate__(self, state: object) -> None:
        """Refuse: a pickle could lead to any place of any file."""
        raise DamagedFileError("A file of tensors sets attributes of one. Expected none to be set.")

    @property
    def end(self) -> int:
        """The byte behind its last one."""
        if 0 in self.shape:
            return self.offset
        last = sum((size - 1) * step for size, step in zip(self.shape, self._steps(), strict=True))
        return self.offset + (last + 1) * self.dtype.itemsize

    def read(self) -> np.ndarray:
        """Return a copy of the numbers: arrays of JAX would share a map of the file with it."""
        if 0 in self.shape:
            return np.zeros(self.shape, self.dtype)
        flat = self._bytes(self.offset, self.end).view(self.dtype)
        if self.strides is None:
            return flat.reshape(self.shape)
        steps = [step * self.dtype.itemsize for step in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False)

    def floats(self) -> np.ndarray:
        """Return the numbers in float32.

        Those of another type are read a part at a time: a table of a large vocabulary would need
        half as much memory again.
        """
        if (
            self.is_computed
            or self.dtype == np.float32
            or self.strides is not None
            or 0 in self.shape
        ):
            return np.asarray(self.read(), np.float32)
        found = np.empty(math.prod(self.shape), np.float32)
        for start in range(0, found.size, _NUMBERS_AT_ONCE):
            part = found[start : start + _NUMBERS_AT_ONCE]
            place = self.offset + start * self.dtype.itemsize
            part[:] = self._bytes(place, place + part.size * self.dtype.itemsize).view(self.dtype)
        return found.reshape(self.shape)

    def _bytes(self, start: int, end: int) -> np.ndarray:
        found = np.fromfile(self.path, np.uint8, end - start, offset=start)
        if found.size != end - start:
            raise DamagedFileError(
                f"'{self.path}' has become shorter since it was opened. Expected {self.end} bytes. "
                "Leave it as it is while it is read."
            )
        return found

    def _steps(self) -> tuple[int, ...]:
        if self.strides is not None:
            return self.strides
        steps = [1]
        for size in self.shape[:0:-1]:
            steps.insert(0, steps[0] * size)
        return tuple(steps) if self.shape else ()


def require_file_of_tensors(path: Path) -> None:
    """Refuse what stands for a file of tensors: nothing at all, or a pointer of Git LFS."""
    if not has_file(path):
        raise FileNotFoundError(
            f"There is no file '{path}'. Expected a file of weights. Check the path."
        )
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise DamagedFileError(
                f"'{path}' is a pointer of Git LFS and not the weights. Run `git lfs pull` in its "
                "folder, or download the file itself."
            )


def require_intact(path: Path, tensors: dict[str, StoredTensor]) -> None:
    """Refuse a file that ends before its tensors do."""
    size = os.path.getsize(path)
    end = max((tensor.end for tensor in tensors.values()), default=0)
    if end > size:
        cut = sum(tensor.end > size for tensor in tensors.values())
        raise DamagedFileError(
            f"'{path}' is cut off: {cut} of its {len(tensors)} tensors lie behind its end. "
            f"Expected at least {end} bytes. Received: {size}. Copy or download it again."
        )
