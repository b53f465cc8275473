"""The argument `dtype` of a layer: what Keras takes for one, and whether a layer computes in it."""

from __future__ import annotations

from typing import Any

import keras

from keras_addnorm.basics.errors import ERRORS_OF_CONFIGS, ArgumentError


def require_dtype(dtype: Any) -> None:
    """Raise a `ValueError` unless a layer can compute in a `dtype`; `None` is Keras' default."""
    try:
        policy = keras.dtype_policies.get(dtype)
        is_of_floats = "float" in policy.compute_dtype
    except ERRORS_OF_CONFIGS:
        is_of_floats = False
    if not is_of_floats:
        raise ArgumentError(
            "`dtype` is what a layer computes in.",
            "a type of floats (float32, bfloat16, ...), a policy of Keras (mixed_bfloat16, "
            "mixed_float16, ...), or its dict",
            dtype=dtype,
        )
