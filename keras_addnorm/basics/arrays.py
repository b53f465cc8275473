"""Tensors of the current backend as NumPy arrays."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

Tensor = Any


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return a tensor as an array; half precision becomes float32, which NumPy can compute with."""
    if keras.backend.standardize_dtype(tensor.dtype) in ("bfloat16", "float16"):
        tensor = ops.cast(tensor, "float32")
    return np.asarray(ops.convert_to_numpy(tensor))
