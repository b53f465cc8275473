"""Reads and writes safetensors files, tensor by tensor.

A file is 8 bytes with the length of the header, the header in JSON (for each tensor its type, shape
and place), and the numbers. The package `safetensors` keeps all tensors in memory to write them,
and needs another package for bfloat16.

Reference: https://huggingface.co/docs/safetensors/index#format
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import parse_json
from keras_addnorm.interop.tensor_files.stored_tensor import (
    DamagedFileError,
    StoredTensor,
    require_file_of_tensors,
    require_intact,
)

_TYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_LENGTH = 8
_LONGEST_HEADER = 100_000_000  # the limit of the format


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a safetensors file by name.

    Args:
        path: The file.

    Returns:
        The tensors.

    Raises:
        FileNotFoundError: If there is no such file.
        DamagedFileError: If it is cut off, or no safetensors file.
        ValueError: If tensors have a type that is not known here.
    """
    require_file_of_tensors(path)
    header, start = _header(path)
    header.pop("__metadata__", None)
    _check_entries(path, header)
    if unknown := sorted({entry["dtype"] for entry in header.values()} - set(_TYPES)):
        raise ArgumentError(
            f"'{path}' holds tensors of a type that is not known here.",
            f"types among {', '.join(_TYPES)}",
            "Save the model in another type.",
            received=", ".join(unknown),
        )
    tensors = {
        name: StoredTensor(
            path, _TYPES[entry["dtype"]], tuple(entry["shape"]), start + entry["data_offsets"][0]
        )
        for name, entry in header.items()
    }
    sizes = {name: entry["data_offsets"][1] for name, entry in header.items()}
    if wrong := [name for name, tensor in tensors.items() if tensor.end != start + sizes[name]]:
        raise DamagedFileError(
            f"'{path}' is damaged: {len(wrong)} of its {len(tensors)} tensors do not end where its "
            f"header says, {wrong[0]!r} among them. Copy or download it again."
        )
    require_intact(path, tensors)
    return tensors


def write_safetensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], np.ndarray]
) -> None:
    """Write a safetensors file in float32, one tensor after the other.

    Args:
        path: The file, which appears as a whole.
        shapes: The shape of each tensor.
        read: Returns a tensor by its name.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, shape in shapes.items():
        end = place + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(_LENGTH, "little"))
        file.write(text)
        for name, shape in shapes.items():
            numbers = np.asarray(read(name), "<f4", order="C")
            if numbers.shape != tuple(shape):
                raise ArgumentError(
                    f"The tensor '{name}' has another shape than the header of '{path}' says.",
                    str(tuple(shape)),
                    value=numbers.shape,
                )
            file.write(numbers.data)


def _check_entries(path: Path, header: dict[str, Any]) -> None:
    """Refuse a header without type, shape and place of each tensor."""
    for name, entry in header.items():
        match entry:
            case {"dtype": str(), "shape": [*shape], "data_offsets": [int(begin), int()]} if (
                begin >= 0 and all(isinstance(size, int) for size in shape)
            ):
                continue
        raise DamagedFileError(
            f"'{path}' is damaged. Expected dtype, shape and data_offsets of each tensor in its "
            f"header. Received for {name!r}: {entry!r:.80}. Copy or download it again."
        )


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a file, and the byte at which its numbers begin."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        text = file.read(length) if length <= _LONGEST_HEADER else b""
    try:
        header = parse_json(text)
    except ValueError as error:
        raise DamagedFileError(
            f"'{path}' is cut off within its header, or is no safetensors file. Expected a header "
            f"of {length} bytes of JSON. Copy or download it again."
        ) from error
    if not isinstance(header, dict):
        raise DamagedFileError(
            f"'{path}' is no safetensors file. Expected a header with the tensors by name. "
            f"Received: {header!r:.80}"
        )
    return header, _LENGTH + length
