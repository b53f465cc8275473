"""Weight storage in an export: float32, float16 or int8."""

from __future__ import annotations

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_addnorm.basics.errors import ArgumentError

# Smaller matrices are not converted: they hardly add to the size of the file.
_SMALLEST = 1024


def require_storage(storage: str) -> str:
    """Return the name of a way to store weights, or raise a `ValueError` if there is none."""
    if not isinstance(storage, str) or storage not in _STORAGES:
        raise ArgumentError(expected=f"one of {', '.join(_STORAGES)} as storage", value=storage)
    return storage


class StoredWeights:
    """A model's weights in the number format of the file, and the model computing with them.

    Computation runs in the model's own precision, whatever the file holds: functions widen the
    stored numbers when they are called. This is no `tf.Module`: the file gets only what `stored`
    lists, not the model's own variables.

    Args:
        model: The model.
        storage: `"float32"`: unchanged. `"float16"`: matrices in half the bytes. `"int8"`:
            matrices as whole numbers from -127 to 127 with one factor for each row of an embedding
            table or column of a kernel, a quarter of the bytes. Vectors (biases, gains) are not
            converted, and share one variable.

    Raises:
        ValueError: If the storage is unknown.
    """

    def __init__(self, model: keras.Model, storage: str = "float32") -> None:
        pack = _STORAGES[require_storage(storage)]
        self._matrices: list[tuple[Any, _Stored]] = []
        vectors = defaultdict(list)
        for weight in model.weights:
            if weight.ndim < 2:
                vectors[weight.dtype].append(weight)
            elif weight.ndim == 2 and np.prod(weight.shape) >= _SMALLEST:
                self._matrices.append((weight, pack(weight)))
            else:
                self._matrices.append((weight, _Unchanged(weight)))
        self._vectors = [(group, _ConcatenatedVectors(group)) for group in vectors.values()]
        self.stored = [stored for _, stored in (*self._matrices, *self._vectors)]

    def transposed(self, weight: Any, dtype: str) -> TransposedTable:
        """Returns the transpose of a weight matrix, computed when the file is loaded."""
        (stored,) = (stored for other, stored in self._matrices if other is weight)
        return TransposedTable(weight, stored, dtype)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Makes the model compute with the stored weights while a function is traced."""
        values = [(weight, stored.widened()) for weight, stored in self._matrices]
        for weights, concatenated in self._vectors:
            values += zip(weights, concatenated.split(), strict=True)
        with keras.StatelessScope(state_mapping=values):
            yield


class _Unchanged(tf.Module):
    """The model's own variable: it is stored once."""

    def __init__(self, variable: Any) -> None:
        super().__init__()
        self.variable = variable.value

    def widened(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.variable)


class _ConcatenatedVectors(tf.Module):
    """Vectors and scalars of one type, concatenated in one variable.

    They are most of a model's variables, and TensorFlow passes each variable to a compiled program
    separately, in microseconds.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        super().__init__()
        self.shapes = [tuple(variable.shape) for variable in variables]
        values = [np.ravel(keras.ops.convert_to_numpy(variable)) for variable in variables]
        self.sizes = [len(value) for value in values]
        self.variable = tf.Variable(np.concatenate(values), trainable=False)

    def split(self) -> list[tf.Tensor]:
        parts = tf.split(self.variable, self.sizes)
        return [
            part if len(shape) == 1 else tf.reshape(part, shape)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]


class _Float16(tf.Module):
    """Storage as float16, for a weight whose values fit in it."""

    def __init__(self, variable: Any) -> None:
        super().__init__()
        values = keras.ops.convert_to_numpy(variable)
        limit = float(np.finfo(np.float16).max)
        largest = float(np.abs(values).max())
        if not largest < limit:
            raise ArgumentError(
                f"The weight {variable.path} does not fit in float16: expected values below "
                f"{limit}.",
                remedy="Use storage='float32'.",
                value=largest,
            )
        self.dtype = variable.dtype
        self.variable = tf.Variable(values.astype("float16"), trainable=False)

    def widened(self) -> tf.Tensor:
        return tf.cast(self.variable, self.dtype)


class _Int8(tf.Module):
    """Storage as int8 with one factor for each row or column (symmetric quantisation)."""

    def __init__(self, variable: Any) -> None:
        super().__init__()
        values = keras.ops.convert_to_numpy(variable)
        # One factor for each output of the weight: a token's vector, or an output channel.
        axis = 1 if variable.name == "embeddings" else 0
        factors = np.abs(values).max(axis=axis, keepdims=True) / 127.0
        factors = np.where(factors == 0.0, 1.0, factors).astype("float32")
        self.dtype = variable.dtype
        self.factors = tf.Variable(factors, trainable=False)
        self.variable = tf.Variable(np.round(values / factors).astype("int8"), trainable=False)

    def widened(self) -> tf.Tensor:
        return tf.cast(tf.cast(self.variable, "float32") * self.factors, self.dtype)


_Stored = _Unchanged | _Float16 | _Int8


class TransposedTable(tf.saved_model.experimental.TrackableResource):
    """A transposed matrix that is computed when the file is loaded: the file does not contain it.

    Without it, searches would transpose the table of embeddings at the beginning of each call.

    Args:
        weight: The matrix.
        stored: The matrix as the file stores it.
        dtype: The precision of the transposed matrix.
    """

    def __init__(self, weight: Any, stored: _Stored, dtype: str) -> None:
        super().__init__()
        self._stored, self._dtype = stored, tf.as_dtype(dtype)
        self._shape = tuple(reversed(weight.shape))
        # Unique, because a process that loads several exports keeps all tables by their names.
        self._shared_name = f"transposed_table_{uuid.uuid4()}"
        # Created here: inside the first function that reads it, it would be a part of the function.
        with tf.init_scope():
            self._initialize()

    def _create_resource(self) -> tf.Tensor:
        return tf.raw_ops.VarHandleOp(
            dtype=self._dtype, shape=self._shape, shared_name=self._shared_name
        )

    def _initialize(self) -> None:
        table = tf.cast(self._stored.widened(), self._dtype)
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=tf.transpose(table))

    def value(self) -> tf.Tensor:
        """Returns the transposed matrix."""
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self._dtype)
        return tf.ensure_shape(value, self._shape)


_STORAGES: dict[str, Callable[[Any], _Stored]] = {
    "float32": _Unchanged,
    "float16": _Float16,
    "int8": _Int8,
}
