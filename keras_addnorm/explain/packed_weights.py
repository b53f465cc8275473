"""Weights as whole numbers of 16 bits with one factor a row, in a text."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

_LARGEST = 32767


def pack(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Write arrays for the page.

    Args:
        arrays: Arrays by name.

    Returns:
        `"index"`, a name and a shape each in their order, and as base64 of little-endian numbers
        `"numbers"` (16 bits, a row after the other) and `"factors"` (float32, one a row). A row
        runs over the last axis.

    Raises:
        ValueError: If a number is not finite.
    """
    numbers, factors = [], []
    for name, array in arrays.items():
        rows, factor = _rows(np.asarray(array, "float32"), name)
        numbers.append(rows.ravel())
        factors.append(factor.ravel())
    return {
        "index": [[name, list(np.shape(array))] for name, array in arrays.items()],
        "numbers": _base64(np.concatenate(numbers), "<i2"),
        "factors": _base64(np.concatenate(factors), "<f4"),
    }


def as_packed(array: Any) -> np.ndarray:
    """Return an array as the page reads it: rounded to 65535 steps a row.

    Args:
        array: The array.

    Returns:
        The same shape, float32; the difference is at most 1 / 65534 of the largest in its row.

    Raises:
        ValueError: If a number is not finite.

    Example:
        >>> float(as_packed([0.5, 1.0])[1])
        1.0
    """
    array = np.asarray(array, "float32")
    rows, factor = _rows(array, "array")
    return (rows.astype("float32") * factor).reshape(array.shape)


def _rows(array: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers `(rows, last axis)` and their factors `(rows, 1)`."""
    if not np.isfinite(array).all():
        raise ValueError(
            f"The weight {name!r} has numbers that are not finite: the training has diverged. "
            "Expected a run whose loss is a number."
        )
    rows = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array.reshape(1, -1)
    factor = np.abs(rows).max(axis=1, keepdims=True) / np.float32(_LARGEST)
    factor = np.where(factor > 0, factor, np.float32(1)).astype("float32")
    whole = np.rint(rows.astype("float64") / factor)
    return whole.clip(-_LARGEST, _LARGEST).astype("int16"), factor


def _base64(array: np.ndarray, dtype: str) -> str:
    return base64.b64encode(array.astype(dtype).tobytes()).decode("ascii")
