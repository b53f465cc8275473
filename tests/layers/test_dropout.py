"""Dropout from a hash: which elements go, how many, and what it costs."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.layers.dropout import Dropout, random_words


def words_by_hand(size, seed, counter):
    """The same hash in Python's own integers."""
    whole = 2**32
    first = (seed * 0x85EBCA6B + counter * 0x7FEB352D) % whole
    second = (counter * 0xC2B2AE35 + seed * 0x9E3779B9) % whole
    for index in range(size):
        x = (index + first) * 0x9E3779B9 % whole
        x = ((x ^ x >> 16) * 0x7FEB352D + second) % whole
        x = (x ^ x >> 15) * 0x846CA68B % whole
        yield x ^ x >> 16


def words(shape, seed=5, counter=0):
    return random_words(shape, tf.constant([seed, counter], "int64")).numpy()


def test_words_are_those_of_the_hash():
    made = words((7, 11), seed=931_000_017, counter=2**31 + 5)
    assert made.ravel().tolist() == list(words_by_hand(77, 931_000_017, 2**31 + 5))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_stays_is_scaled_and_what_goes_has_no_gradient(dtype, jit_compile):
    rate, seed = 0.3, 17
    layer = Dropout(rate, seed=seed, dtype=dtype)
    x = tf.cast(tf.reshape(tf.range(1.0, 106.0), (5, 3, 7)), dtype)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return y, tape.gradient(y, x)

    for counter in range(2):
        y, dx = run(x)
        kept = np.array([w >= round(rate * 2**32) for w in words_by_hand(105, seed, counter)])
        slope = (kept / (1 - rate)).reshape(x.shape)
        tolerance = 1e-6 if dtype == "float32" else 1e-2
        np.testing.assert_allclose(tf.cast(dx, "float32"), slope, rtol=tolerance)
        x32 = tf.cast(x, "float32").numpy()
        np.testing.assert_allclose(tf.cast(y, "float32"), slope * x32, rtol=tolerance)
    assert layer.seed_generator.state.numpy().tolist() == [seed, 2]


@pytest.mark.parametrize("rate", [0.0, 2.0**-32, 0.5, 1.0])
def test_extreme_rates(rate):
    y = Dropout(rate, seed=3)(tf.ones((101, 103)), training=True).numpy()
    assert np.isfinite(y).all()
    expected = {0.0: 1, 2.0**-32: 1, 0.5: 0.5, 1.0: 0}[rate]
    assert np.mean(y != 0) == pytest.approx(expected, abs=0.02)


def test_no_dropout_without_training_and_keras_own_for_a_noise_shape():
    x = tf.ones((5, 3, 7))
    assert Dropout(0.5)(x) is x
    y = Dropout(0.5, noise_shape=(None, 1, 1), seed=3)(x, training=True).numpy()
    assert all(len(np.unique(row)) == 1 for row in y)


def test_words_look_random():
    # Bits, against those of neighbours along each axis, of the next step and of the next layer.
    shape = (61, 67, 71)
    made = words(shape)
    others = {
        "along the last axis": (made[..., 1:], made[..., :-1]),
        "along the second": (made[:, 1:], made[:, :-1]),
        "along the first": (made[1:], made[:-1]),
        "the next step": (made, words(shape, counter=1)),
        "the next layer": (made, words(shape, seed=6)),
        "a step of the next layer": (made, words(shape, seed=6, counter=1)),
    }
    for bit in (31, 30, 28, 16, 0):
        share = np.mean(made >> bit & 1)
        assert abs(share - 0.5) < 4 * 0.5 / made.size**0.5, bit
        for name, (one, other) in others.items():
            agree = np.mean((one ^ other) >> bit & 1)
            assert abs(agree - 0.5) < 4 * 0.5 / one.size**0.5, (name, bit)
    # Of a hundred equal bins, chi squared with 99 degrees of freedom: 162 is one in 40,000.
    counts = np.histogram(made, bins=100, range=(0, 2**32))[0]
    assert np.sum((counts - made.size / 100) ** 2) / (made.size / 100) < 162


def test_xla_draws_no_random_words_and_keeps_no_mask():
    layer = Dropout(0.1, seed=3)
    x = tf.ones((6, 10, 32))

    @tf.function(jit_compile=True, autograph=False)
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return tape.gradient(y, x, x)

    text = run.experimental_get_compiler_ir(x)(stage="optimized_hlo")
    assert "rng" not in text
    entry = text[text.index("ENTRY") :]
    assert not re.search(r"(pred|u32)\[(6,10,32|1920)\]", entry)
    keras_layer = keras.layers.Dropout(0.1, seed=3)
    run_keras = tf.function(lambda x: keras_layer(x, training=True), jit_compile=True)
    assert "u32" in run_keras.experimental_get_compiler_ir(x)(stage="optimized_hlo")
