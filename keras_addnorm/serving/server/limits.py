"""What a request may cost, reckoned from its inputs before anything is computed."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.loaded_version import Signature, Spec
from keras_addnorm.serving.server.proto_tensors import Arrays
from keras_addnorm.serving.server.settings import Settings

LARGE = 64 * 1024
"""Bytes above which a request or an answer is large: it is read and written beside the others."""

# A string in memory: what Python and TensorFlow take for each one, besides its bytes.
_STRING = 64


class TooMuchError(ServingError):
    """A request that would cost more than is allowed; it is useless to send it again."""

    http_status = 413

    def __init__(self, message: str) -> None:
        super().__init__("INVALID_ARGUMENT", message)


def check_cost(signature: Signature, inputs: Arrays, settings: Settings) -> int:
    """Refuses a request with too many rows, too long strings, or outputs that would be too large.

    Returns how many bytes the outputs will take at most, as far as the inputs tell.
    """
    rows = count_rows(inputs)
    if rows > settings.max_rows:
        raise ServingError(
            "INVALID_ARGUMENT",
            f"Expected at most {settings.max_rows} rows in one request; received {rows}. Send "
            "several requests, or start the server with a larger max_request_bytes.",
        )
    longest = max(map(_longest_string, inputs.values()), default=0)
    if longest > settings.max_text_bytes:
        raise TooMuchError(
            f"Expected texts of at most {settings.max_text_bytes} bytes; received one of "
            f"{longest}. Send it in parts, or start the server with a larger max_request_bytes."
        )
    size = _answer_bytes(signature, inputs, rows)
    if size > settings.max_answer_bytes:
        raise TooMuchError(
            f"Expected a request whose answer takes at most {settings.max_answer_bytes} bytes; for "
            f"{rows} rows as long as these, '{signature.name}' can take {size}. Send fewer or "
            "shorter rows, or start the server with a larger max_request_bytes."
        )
    return size


def count_rows(inputs: Arrays) -> int:
    """The rows of a request: those of its longest input."""
    return max((array.shape[0] for array in inputs.values() if array.ndim), default=0)


def bytes_of(arrays: Arrays) -> int:
    """The bytes of arrays, of their strings too."""
    return sum(array.nbytes + int(_lengths(array).sum()) for array in arrays.values())


def are_large(arrays: Arrays) -> bool:
    """Whether arrays are large, so that writing them takes time."""
    return sum(array.nbytes for array in arrays.values()) > LARGE or bytes_of(arrays) > LARGE


def row_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of each element of a vector."""
    return _lengths(array) if array.dtype == object else np.full(array.shape, array.itemsize)


def _lengths(array: np.ndarray) -> np.ndarray:
    """The length of each string; nothing of an array of numbers."""
    if array.dtype != object:
        return np.zeros(0, np.int64)
    return np.fromiter(map(len, array.ravel()), np.int64, array.size)


def _longest_string(array: np.ndarray) -> int:
    return int(_lengths(array).max(initial=0))


def _answer_bytes(signature: Signature, inputs: Arrays, rows: int) -> int:
    """What the outputs take, if each unknown axis is as long as the longest row of the inputs.

    A text has no more tokens than bytes.
    """
    width = max(
        (max(_longest_string(array), *array.shape[1:], 1) for array in inputs.values()), default=1
    )
    strings = sum(int(_lengths(array).sum()) for array in inputs.values())
    return strings + sum(_spec_bytes(spec, rows, width) for spec in signature.outputs.values())


def _spec_bytes(spec: Spec, rows: int, width: int) -> int:
    shape = (None, None) if spec.shape is None else spec.shape
    sizes = [
        size if size is not None else width if axis else rows for axis, size in enumerate(shape)
    ]
    return math.prod(sizes) * (_STRING if spec.dtype == tf.string else spec.dtype.size)
