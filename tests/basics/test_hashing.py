"""`lowbias32` on both integer types, against whole numbers of Python."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_addnorm.basics.hashing import lowbias32

WORDS = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xDEADBEEF, 123456789]


def reference(x, key=0):
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32
    x = (x + key) % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    return x ^ x >> 16


DTYPES = ["int32"] if keras.backend.backend() == "torch" else ["int32", "uint32"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("key", [None, 0, 77, 0xC0FFEE11])
def test_all_bits(dtype, key):
    x = ops.convert_to_tensor(np.array(WORDS, "uint32").astype(dtype))
    keyed = None if key is None else ops.convert_to_tensor(np.uint32(key).astype(dtype))
    found = ops.convert_to_numpy(lowbias32(x, keyed))
    assert found.dtype == dtype
    assert found.astype("uint32").tolist() == [reference(word, key or 0) for word in WORDS]
