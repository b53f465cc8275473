"""A hash of 32-bit integers, for random numbers that depend on what they are for.

Reference:
    Wellons, "Prospecting for Hash Functions", 2018 (`lowbias32`, the best of its search).
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

Tensor = Any

GOLDEN = 0x9E3779B9
"""2^32 over the golden ratio, made odd: its multiples are spread evenly over 32 bits."""

FIRST_MULTIPLIER = 0x7FEB352D
SECOND_MULTIPLIER = 0x846CA68B


def lowbias32(x: Tensor, key: Tensor | None = None) -> Tensor:
    """Scramble 32-bit integers: each bit of the result depends on all bits of `x`.

    Products overflow on purpose. int32 and uint32 give the same bits; torch has no products of
    uint32, and XLA is quicker with them. The key is added after the first product.
    """
    x = _xor_shift(x, 16) * word(FIRST_MULTIPLIER, x.dtype)
    if key is not None:
        x = x + key
    x = _xor_shift(x, 15) * word(SECOND_MULTIPLIER, x.dtype)
    return _xor_shift(x, 16)


def word(number: int, dtype: Any) -> Tensor:
    """Return the scalar int32 or uint32 of these 32 bits, a number from 0 to 2^32 - 1."""
    dtype = keras.backend.standardize_dtype(dtype)
    return ops.convert_to_tensor(np.uint32(number).astype(dtype), dtype)


def _xor_shift(x: Tensor, bits: int) -> Tensor:
    shifted = ops.right_shift(x, word(bits, x.dtype))
    if keras.backend.standardize_dtype(x.dtype) == "int32":
        # The shift of a signed number repeats the sign.
        shifted = ops.bitwise_and(shifted, word(2 ** (32 - bits) - 1, x.dtype))
    return ops.bitwise_xor(x, shifted)
