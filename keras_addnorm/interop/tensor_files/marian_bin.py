"""Reads and writes Marian's `.bin`, the file that Bergamot's engine maps into memory.

A file is the version, the number of tensors, and a header for each (lengths of its name, shape and
data, and its type); then all names, all shapes, padding, and the data of each tensor, which begin
at multiples of 256 bytes. Numbers are little-endian, those of headers unsigned with 8 bytes.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.interop.tensor_files.stored_tensor import (
    DamagedFileError,
    StoredTensor,
    require_file_of_tensors,
)

_VERSION = 1
_ALIGNMENT = 256
_FLOAT32, _INT8, _INTGEMM8 = 0x404, 0x101, 0x4101
_TYPES: dict[int, np.dtype[Any]] = {
    _FLOAT32: np.dtype("<f4"),
    _INT8: np.dtype("i1"),
    _INTGEMM8: np.dtype("i1"),
}
# In a logits table the rows are those of tokens, and it lies as it is.
_NOT_TRANSPOSED = ("Wemb",)
_LARGEST = 127


@dataclasses.dataclass(frozen=True)
class EightBitMatrix:
    """A matrix of whole numbers, each a number of the model times the multiplier.

    Args:
        integers: `(K, N)` int8, from -127 to 127.
        multiplier: The factor, such as 127 / max|W|.
    """

    integers: np.ndarray
    multiplier: np.float32

    @classmethod
    def of(cls, numbers: np.ndarray) -> EightBitMatrix:
        """Round a matrix to the grid whose largest number is 127.

        Args:
            numbers: `(K, N)`.

        Returns:
            The whole numbers with their multiplier; of a matrix of zeros it is 1.
        """
        numbers = np.asarray(numbers, np.float32)
        largest = np.float32(np.max(np.abs(numbers), initial=0))
        multiplier = np.float32(_LARGEST) / largest if largest else np.float32(1)
        return cls(np.rint(numbers * multiplier).astype(np.int8), multiplier)

    def floats(self) -> np.ndarray:
        """Return the numbers of the model, float32."""
        return self.integers.astype(np.float32) / self.multiplier


@dataclasses.dataclass(frozen=True)
class StoredEightBitMatrix(StoredTensor):
    """An `intgemm8` matrix of a file: `read` returns the numbers that it stands for.

    Attributes:
        is_transposed: Whether the whole numbers of a column stand side by side.
    """

    is_transposed: bool = dataclasses.field(kw_only=True)

    is_computed = True

    @property
    def end(self) -> int:
        """The byte behind its last one, that of the multiplier."""
        return super().end + 4

    def matrix(self) -> EightBitMatrix:
        """Return the whole numbers, and their multiplier."""
        raw = np.fromfile(self.path, np.uint8, self.end - self.offset, offset=self.offset)
        count = math.prod(self.shape)
        multiplier = raw[count:].view("<f4")
        if multiplier.shape != (1,) or not 0 < multiplier[0] < np.inf:
            raise DamagedFileError(
                f"'{self.path}' has no multiplier behind a matrix of whole numbers. Expected a "
                "positive number. Copy or download it again."
            )
        integers = raw[:count].view(np.int8)
        if self.is_transposed:
            integers = integers.reshape(self.shape[::-1]).T
        return EightBitMatrix(integers.reshape(self.shape), multiplier[0])

    def read(self) -> np.ndarray:
        """Return the numbers of the model."""
        return self.matrix().floats()


def is_marian_bin(path: Path) -> bool:
    """Return whether a file begins as a model of Marian's `.bin` does."""
    with path.open("rb") as file:
        head = file.read(16)
    if len(head) < 16:
        return False
    version, count = struct.unpack("<QQ", head)
    return version == _VERSION and 32 * count <= path.stat().st_size


def read_marian_bin(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a `.bin` of Marian or Bergamot by name.

    Args:
        path: The file.

    Returns:
        The tensors. Those of eight bits are `StoredEightBitMatrix`, whose `floats` are the numbers
        of the model.

    Raises:
        FileNotFoundError: If there is no such file.
        DamagedFileError: If it is cut off, or no such file.
        ValueError: If tensors have a type that is not known here.
    """
    require_file_of_tensors(path)
    try:
        with path.open("rb") as file:
            headers, names, shapes, place = _read_head(_Bounded(file, path.stat().st_size))
    except (ValueError, UnicodeDecodeError) as error:
        raise DamagedFileError(
            f"'{path}' cannot be read as a .bin of Marian: {error}. Expected a model that "
            "marian-conv or keras_addnorm wrote. Copy or download it again."
        ) from error
    if unknown := sorted({kind for _, kind, _, _ in headers} - set(_TYPES)):
        raise ArgumentError(
            f"'{path}' holds tensors of a type that is not known here.",
            "float32 (0x404), int8 (0x101) or intgemm8 (0x4101)",
            "Other types lie as one processor wants them: load the .npz or the float32 .bin that "
            "this one was made of.",
            received=", ".join(map(hex, unknown)),
        )
    tensors: dict[str, StoredTensor] = {}
    for (_, kind, _, length), name, shape in zip(headers, names, shapes, strict=True):
        if kind == _INTGEMM8:
            tensor: StoredTensor = StoredEightBitMatrix(
                path, _TYPES[kind], shape, place, is_transposed=name not in _NOT_TRANSPOSED
            )
        else:
            tensor = StoredTensor(path, _TYPES[kind], shape, place)
        if tensor.end > place + length:
            raise DamagedFileError(
                f"'{path}' is damaged: its tensor '{name}' of the shape {shape} needs "
                f"{tensor.end - place} bytes. Expected as many as its header says. Received: "
                f"{length}. Copy or download it again."
            )
        tensors[name] = tensor
        place += length
    if place > path.stat().st_size:
        raise DamagedFileError(
            f"'{path}' is cut off. Expected {place} bytes. Received: {path.stat().st_size}. Copy "
            "or download it again."
        )
    return tensors


def write_marian_bin(
    path: Path, tensors: Mapping[str, np.ndarray | EightBitMatrix | bytes]
) -> None:
    """Write a `.bin` as Bergamot's engine reads it.

    Args:
        path: The file, which appears as a whole.
        tensors: For each name an array, which is stored in float32; a matrix of eight bits; or
            bytes, such as the settings.
    """
    items = {name: _item(name, value) for name, value in tensors.items()}
    encoded = [name.encode() + b"\0" for name in items]
    headers = [
        struct.pack("<QQQQ", len(name), kind, len(shape), _aligned(len(data)))
        for name, (kind, shape, data) in zip(encoded, items.values(), strict=True)
    ]
    shapes = [struct.pack(f"<{len(shape)}i", *shape) for _, shape, _ in items.values()]
    head = b"".join([struct.pack("<QQ", _VERSION, len(items)), *headers, *encoded, *shapes])
    padding = _aligned(len(head) + 8) - len(head) - 8
    head += struct.pack("<Q", padding) + bytes(padding)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        file.write(head)
        for _, _, data in items.values():
            file.write(data)
            file.write(bytes(_aligned(len(data)) - len(data)))


def _item(
    name: str, value: np.ndarray | EightBitMatrix | bytes
) -> tuple[int, tuple[int, ...], bytes]:
    """Return the type, the shape and the data of a tensor."""
    if isinstance(value, bytes):
        return _INT8, (len(value),), value
    if isinstance(value, EightBitMatrix):
        integers = value.integers if name in _NOT_TRANSPOSED else value.integers.T
        data = integers.astype(np.int8).tobytes() + np.float32(value.multiplier).tobytes()
        return _INTGEMM8, value.integers.shape, data
    numbers = np.asarray(value, "<f4")
    return _FLOAT32, numbers.shape, numbers.tobytes()


def _aligned(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


class _Bounded:
    """Reads a file from its beginning, and nothing that lies behind its end."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self.left, self.place = file, size, 0

    def read(self, length: int, what: str) -> bytes:
        """Return so many bytes; raise a `ValueError` if there are fewer."""
        if length > self.left:
            raise ValueError(f"it ends within its {what}")
        self.left -= length
        self.place += length
        return self._file.read(length)


def _read_head(
    file: _Bounded,
) -> tuple[list[tuple[int, int, int, int]], list[str], list[tuple[int, ...]], int]:
    """Return headers, names and shapes of all tensors, and the place where the data begin."""
    version, count = struct.unpack("<QQ", file.read(16, "first numbers"))
    if version != _VERSION:
        raise ValueError(f"its version is {version}, and not {_VERSION}")
    headers = list(struct.iter_unpack("<QQQQ", file.read(32 * count, "headers")))
    names = [file.read(length, "names").rstrip(b"\0").decode() for length, *_ in headers]
    if len(set(names)) < len(names):
        raise ValueError("two of its tensors have one name")
    shapes = [
        struct.unpack(f"<{axes}i", file.read(4 * axes, "shapes")) for _, _, axes, _ in headers
    ]
    (padding,) = struct.unpack("<Q", file.read(8, "shapes"))
    file.read(padding, "padding")
    return headers, names, shapes, file.place
