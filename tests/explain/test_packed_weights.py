"""Weights in 16 bits with one factor a row."""

import base64

import numpy as np
import pytest

from keras_addnorm.explain import as_packed
from keras_addnorm.explain.packed_weights import pack

RNG = np.random.default_rng(1)
ARRAYS = {
    "kernel": RNG.normal(size=(4, 5)) * [[1], [1e-4], [300], [0]],
    "bias": RNG.normal(size=3),
    "alpha": np.float32(0.25),
}


def test_a_row_is_exact_to_65534_steps_of_its_own_size():
    for array in ARRAYS.values():
        rounded = as_packed(array)
        assert rounded.shape == np.shape(array) and rounded.dtype == "float32"
        rows = np.abs(array).max(-1, keepdims=True) if np.ndim(array) > 1 else np.abs(array).max()
        assert (np.abs(rounded - array) <= rows / 65534 * 1.001 + 1e-12).all()
        np.testing.assert_allclose(as_packed(rounded), rounded, rtol=1e-6)


def test_the_text_has_what_as_packed_says():
    packed = pack(ARRAYS)
    assert packed["index"] == [["kernel", [4, 5]], ["bias", [3]], ["alpha", []]]
    numbers = np.frombuffer(base64.b64decode(packed["numbers"]), "<i2").astype("float32")
    factors = np.frombuffer(base64.b64decode(packed["factors"]), "<f4")
    assert len(numbers) == 24 and len(factors) == 4 + 1 + 1
    kernel = numbers[:20].reshape(4, 5) * factors[:4, None]
    np.testing.assert_array_equal(kernel, as_packed(ARRAYS["kernel"]))
    np.testing.assert_array_equal(numbers[20:23] * factors[4], as_packed(ARRAYS["bias"]))
    np.testing.assert_array_equal(numbers[23] * factors[5], as_packed(ARRAYS["alpha"]))


def test_a_diverged_training_is_named():
    with pytest.raises(ValueError, match="'encoder/x' has numbers that are not finite"):
        pack({"encoder/x": np.array([1.0, np.nan])})
