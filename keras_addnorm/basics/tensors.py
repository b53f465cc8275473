"""Tensors of the current backend: as NumPy arrays, as ids, and their sums over the last axis.

On processors such sums are matrix products with a vector: XLA's loops add numbers one after the
other, its products several at a time. XLA also computes what it sums anew in each loop that needs
it, and not what it multiplies. Nothing is reshaped, because a reshape slows a loop of XLA's down;
but where only the batch size is unknown, as in decoding, rows are flattened, because TensorFlow
puts 24 shape operations around each product otherwise. Where more sizes are unknown, TensorFlow
would copy the array, so it is reshaped for its sums alone.

On accelerators a product may be rounded to fewer bits, and sums are fast: there they are plain.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.errors import ArgumentError

Tensor = Any


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return a tensor as an array; half precision becomes float32, which NumPy can compute with."""
    if keras.backend.standardize_dtype(tensor.dtype) in ("bfloat16", "float16"):
        tensor = ops.cast(tensor, "float32")
    return np.asarray(ops.convert_to_numpy(tensor))


def to_tensor(values: Any) -> Tensor:
    """Return numbers as a tensor: whole ones stay whole, and booleans what they are.

    Keras makes float32 of them on JAX under `set_floatx("bfloat16")`, if it is asked for no type.
    int64 is int32 where the backend has no other.
    """
    if isinstance(values, np.ndarray | list | tuple) and keras.backend.backend() == "jax":
        array = np.asarray(values)
        if array.dtype.kind in "biu":
            narrow = {"int64": "int32", "uint64": "uint32"}.get(array.dtype.name, array.dtype.name)
            return ops.convert_to_tensor(array.astype(narrow), narrow)
    return ops.convert_to_tensor(values)


def as_mask(mask: Any, name: str = "padding_mask") -> Tensor:
    """Return a mask as booleans; a `ValueError` if it is of floats, or none at all.

    Floats are usually those of a mask that is added, whose 0 means "attend" and whose -1e9 does
    not: as booleans they would be the opposite.

    Args:
        mask: Booleans, or whole numbers of which 0 is False.
        name: What the caller names it.

    Returns:
        Booleans of its shape.
    """
    if isinstance(mask, list | tuple):
        mask = np.asarray(mask)
    dtype = getattr(mask, "dtype", None)
    kind = type(mask).__name__ if dtype is None else keras.backend.standardize_dtype(dtype)
    if kind != "bool" and "int" not in kind:
        raise ArgumentError(
            f"`{name}` says where to attend.",
            "booleans, True at what is attended to, or 1 and 0 as integers",
            "Of floats of which 1 is attended to, pass mask > 0.5; of those that are added to "
            "logits, mask == 0.",
            received=kind,
        )
    return ops.cast(mask, "bool")


def not_finite(weights: Iterable[Any]) -> list[str]:
    """Return the paths of the weights that hold NaN or an infinity, in their order."""
    return [weight.path for weight in weights if not np.isfinite(to_numpy(weight)).all()]


def values_of(tensor: Any) -> np.ndarray | None:
    """Return the values of an array or an eager tensor; `None` where they cannot be looked at.

    Those of a tensor that is being traced are not there yet. Those of torch's tensors are left
    alone: they may be on a device, and looking at them would break a compiled graph in two.
    """
    is_tensor = keras.ops.is_tensor(tensor)
    if isinstance(tensor, keras.KerasTensor) or (is_tensor and keras.backend.backend() == "torch"):
        return None
    try:
        values = np.asarray(tensor)
    except (TypeError, ValueError, NotImplementedError, RuntimeError):
        return None
    return values if values.dtype.kind in "biuf" else None


def wide_ids(ids: Tensor) -> Tensor:
    """Return integers that compare with any id: int64 where they may need it, else int32."""
    return ops.cast(ids, "int64" if ops.dtype(ids) in ("int64", "uint64") else "int32")


def inside_vocabulary(ids: Tensor, size: Any) -> Tensor:
    """Return where ids are at least 0 and below a size, of the same shape."""
    ids = wide_ids(ids)
    return ops.logical_and(ops.greater_equal(ids, 0), ops.less(ids, size))


def row_means(x: Tensor) -> Tensor:
    """Return means over the last axis of floats: `(..., D)` -> `(..., 1)`."""
    width = x.shape[-1]
    if not sums_are_products():
        return ops.sum(x * (1.0 / width), axis=-1, keepdims=True)
    # A NumPy array becomes one constant for all norms of a program, and no operation.
    return _product(x, np.full((width, 1), 1.0 / width, ops.dtype(x)))


def row_sums(x: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums over the last axis."""
    if not sums_are_products():
        return ops.sum(x * weights, axis=-1, keepdims=True)
    return _product(x, ops.expand_dims(weights, -1))


@functools.cache
def sums_are_products() -> bool:
    """Return whether sums are matrix products here."""
    return keras.backend.backend() in ("tensorflow", "jax") and all(
        device.startswith("cpu") for device in keras.distribution.list_devices()
    )


def _product(x: Tensor, column: Tensor) -> Tensor:
    # (..., D), (D, 1) -> (..., 1)
    *leading, width = x.shape
    if None not in leading or len(leading) == 1:
        return ops.matmul(x, column)
    # TensorFlow's `matmul` copies an array of unknown sizes in order to transpose it.
    sums = ops.matmul(ops.reshape(x, (-1, width)), column)
    return ops.reshape(sums, (*ops.shape(x)[:-1], 1))
