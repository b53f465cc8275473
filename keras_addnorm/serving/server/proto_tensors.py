"""Reads and writes tensors in protocol buffers; input from clients is not trusted."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from keras_addnorm.serving.errors import MOST_AXES, ServingError

Arrays = dict[str, np.ndarray]
"""Tensors by name. Strings are arrays of bytes objects."""


def to_arrays(protos: Mapping[str, tensor_pb2.TensorProto], max_bytes: int) -> Arrays:
    """Reads the tensors of a request by name; strings are bytes. `INVALID_ARGUMENT` if one is none.

    All together may take `max_bytes`: a message of a few bytes can ask for any amount, since one
    value may stand for a whole tensor of equal values.
    """
    arrays, left = {}, max_bytes
    for name, proto in protos.items():
        with _refusing(name):
            left -= _bytes_of(proto)
        if left < 0:
            raise ServingError(
                "INVALID_ARGUMENT",
                f"Expected inputs of at most {max_bytes} bytes together; received more. "
                "Send several requests, or raise the server's max_request_bytes.",
            )
        with _refusing(name):
            arrays[name] = np.asarray(tf.make_ndarray(proto))
    return arrays


def to_proto(array: np.ndarray) -> tensor_pb2.TensorProto:
    """Converts an array to a tensor message."""
    proto: tensor_pb2.TensorProto = tf.make_tensor_proto(array)
    return proto


def _bytes_of(proto: tensor_pb2.TensorProto) -> int:
    """The memory that a tensor takes in addition to the strings in its message."""
    dtype = tf.dtypes.as_dtype(proto.dtype)
    if len(proto.tensor_shape.dim) > MOST_AXES:
        raise ValueError("too many axes")
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or min(sizes, default=0) < 0:
        raise ValueError("impossible shape")
    count = math.prod(sizes)
    if dtype != tf.string:
        return count * max(dtype.size, 1)
    # A pointer for each element; TensorFlow repeats the last string for the missing elements.
    repeated = max(count - len(proto.string_val), 0)
    return count * 8 + repeated * len(proto.string_val[-1] if proto.string_val else b"")


@contextlib.contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a malformed message can cause any exception
        raise ServingError(
            "INVALID_ARGUMENT",
            f"Input '{name}' is not a valid tensor: its type, its shape and its values do not fit "
            "together.",
        ) from error
