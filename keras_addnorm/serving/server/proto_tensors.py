"""Tensors in protocol buffers, both ways; those of strangers with care."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from keras_addnorm.serving.errors import ServingError


def to_array(proto: tensor_pb2.TensorProto, name: str, max_bytes: int) -> np.ndarray:
    """Reads a tensor.

    Args:
        proto: The message.
        name: The tensor's name, for errors.
        max_bytes: The largest tensor to make: a message of a few bytes can ask for any size, since
            one value stands for a whole tensor of it.

    Returns:
        The array; strings are bytes objects.

    Raises:
        ServingError: If it is no tensor: `INVALID_ARGUMENT`.
    """
    try:
        dtype = tf.dtypes.as_dtype(proto.dtype)
        sizes = [dim.size for dim in proto.tensor_shape.dim]
        # The element of a string tensor is a pointer here.
        needed = math.prod(sizes) * max(8 if dtype == tf.string else dtype.size, 1)
        if proto.tensor_shape.unknown_rank or min(sizes, default=0) < 0 or needed > max_bytes:
            raise ValueError("impossible shape")
        return np.asarray(tf.make_ndarray(proto))
    except Exception as error:  # the message is a stranger's, and so is what it trips
        raise ServingError(
            "INVALID_ARGUMENT",
            f"Input '{name}' is not a valid tensor: its type, its shape and its values do not fit "
            "together.",
        ) from error


def to_proto(array: np.ndarray) -> tensor_pb2.TensorProto:
    """Writes a tensor.

    Args:
        array: The array.

    Returns:
        The message.
    """
    proto: tensor_pb2.TensorProto = tf.make_tensor_proto(array)
    return proto
