import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from layers_reference import array, random

from keras_addnorm import norms
from keras_addnorm.layers import (
    SSRU,
    AverageAttention,
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
)
from keras_addnorm.layers.masks import combine_masks, key_distances, masked_softmax, position_mask

F, T = False, True


def causal_mask(queries, keys, offset=0):
    return position_mask(key_distances(queries, keys, offset), is_causal=True)


def test_causal_mask():
    np.testing.assert_array_equal(causal_mask(2, 3), [[T, F, F], [T, T, F]])


def test_causal_mask_behind_a_cache():
    np.testing.assert_array_equal(causal_mask(2, 4, offset=1), [[T, T, F, F], [T, T, T, F]])


def test_no_mask_at_all():
    assert combine_masks() is None


def test_masks_are_combined_by_and():
    mask = combine_masks(
        padding_mask=np.array([[T, T, F], [T, F, T]]),
        attention_mask=np.array([[T, T, T], [F, T, T]]),
        by_position=np.array([[T, F, F], [T, T, T]]),
    )
    expected = [[[[T, F, F], [F, T, F]]], [[[T, F, F], [F, F, T]]]]
    np.testing.assert_array_equal(mask, expected)


def test_a_batched_attention_mask():
    mask = np.array([[[T, F]], [[F, T]]])
    np.testing.assert_array_equal(combine_masks(attention_mask=mask), mask[:, None])


def test_integer_masks_count_as_booleans():
    np.testing.assert_array_equal(combine_masks(np.array([[1, 0]])), [[[[T, F]]]])


def test_masked_softmax_by_hand():
    logits = np.log(np.array([[1.0, 3.0, 4.0], [1.0, 3.0, 4.0], [7.0, 1.0, 2.0]]))
    mask = np.array([[T, T, F], [F, F, F], [T, T, T]])
    expected = [[0.25, 0.75, 0.0], [0.0, 0.0, 0.0], [0.7, 0.1, 0.2]]
    np.testing.assert_allclose(masked_softmax(logits, mask), expected, rtol=1e-12)
    np.testing.assert_allclose(masked_softmax(logits, None)[0], [0.125, 0.375, 0.5], rtol=1e-12)


def test_one_key_gets_all_the_attention_without_a_warning():
    logits = tf.constant([[[7.0]], [[-3.0]]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        everything = masked_softmax(logits, None)
        weights = masked_softmax(logits, np.array([[[T]], [[F]]]))
    np.testing.assert_array_equal(everything, [[[1.0]], [[1.0]]])
    np.testing.assert_array_equal(weights, [[[1.0]], [[0.0]]])
    for result in (everything, weights):
        np.testing.assert_array_equal(tape.gradient(result, logits), np.zeros((2, 1, 1)))


def plain_softmax(logits, mask):
    """The same without a gradient by hand."""
    weights = tf.nn.softmax(tf.where(mask, logits, tf.constant(-1e30, logits.dtype)))
    return weights * tf.cast(tf.reduce_any(mask, -1, keepdims=True), logits.dtype)


MASK = np.array([[T, T, F, T], [F, F, F, F], [T, F, F, F]])


@pytest.mark.parametrize("mask", [MASK, None])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_are_those_of_the_formula_and_have_gradients(mask, jit_compile):
    rng = np.random.default_rng(4)
    logits, upstream, direction = (tf.constant(rng.normal(size=(2, 3, 4))) for _ in range(3))

    @tf.function(jit_compile=jit_compile)
    def slopes(softmax):
        with tf.GradientTape() as outer:
            outer.watch(logits)
            with tf.GradientTape() as inner:
                inner.watch(logits)
                value = tf.reduce_sum(softmax(logits, mask) ** 2 * upstream)
            first = inner.gradient(value, logits)
            along = tf.reduce_sum(first * direction)
        return first, outer.gradient(along, logits)

    everything = tf.ones((3, 4), tf.bool)
    expected = slopes(
        lambda logits, mask: plain_softmax(logits, everything if mask is None else mask)
    )
    for found, wanted in zip(slopes(masked_softmax), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
        assert np.any(wanted)


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_weights_of_16_bits_come_from_logits_of_32(half):
    rng = np.random.default_rng(4)
    logits = tf.constant(20.0 * rng.normal(size=(2, 3, 4)), "float32")
    upstream = tf.constant(rng.normal(size=(2, 3, 4)), half)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        weights = masked_softmax(logits, MASK, dtype=half)
        exact = plain_softmax(logits, MASK)
    assert weights.dtype == half
    np.testing.assert_array_equal(weights, tf.cast(exact, half))
    found = tape.gradient(weights, logits, upstream)
    assert found.dtype == "float32"
    expected = tape.gradient(exact, logits, tf.cast(upstream, "float32"))
    np.testing.assert_allclose(found, expected, rtol=2**-6, atol=2**-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"padding_mask": np.ones((2, 3, 3), bool)}, r"padding_mask.*\(batch, keys\).*\(2, 3, 3\)"),
        ({"attention_mask": np.ones((3,), bool)}, r"attention_mask.*\(batch, queries, keys\)"),
    ],
)
def test_a_mask_of_the_wrong_rank_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        combine_masks(**arguments)


@settings(deadline=None, max_examples=60)  # Shared machines are slow at times.
@given(st.data())
def test_any_shapes_and_masks_give_the_softmax_over_what_may_be_attended_to(data):
    batch, queries, keys = (data.draw(st.integers(1, 4)) for _ in range(3))
    offset = data.draw(st.integers(0, 3))
    seed = data.draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    padding, allowed = rng.random((batch, keys)) < 0.6, rng.random((batch, queries, keys)) < 0.6
    logits = rng.normal(size=(batch, 2, queries, keys)).astype("float32")

    mask = combine_masks(padding, allowed, causal_mask(queries, keys, offset))
    weights = keras.ops.convert_to_numpy(masked_softmax(logits, mask))

    expected = np.zeros_like(logits)
    for b, h, t in np.ndindex(batch, 2, queries):
        seen = [s for s in range(keys) if padding[b, s] and allowed[b, t, s] and s <= t + offset]
        e = np.exp(logits[b, h, t, seen])
        expected[b, h, t, seen] = e / e.sum()
    np.testing.assert_allclose(weights, expected, atol=1e-6)


ATTENTIONS = {
    "multi-head": lambda: MultiHeadSelfAttention(num_heads=2),
    "recurrent": SSRU,
    "average": lambda: AverageAttention(8),
    "batch_norm": lambda: norms.get("batch_norm")(),
}


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("mask", [np.array([[0, 0, -1e9]]), np.ones((1, 3), "float16"), "causal"])
def test_a_mask_of_floats_is_refused(name, mask):
    """One that is added to logits has 0 where a key is seen: it was taken for its opposite."""
    layer, x = ATTENTIONS[name](), random(1, 3, 4)
    with pytest.raises(ValueError, match=r"says where to attend.*mask == 0") as error:
        layer(x, padding_mask=mask, training=True)
    assert "Received: float" in str(error.value) or "Received: str" in str(error.value)


def test_masks_of_integers_and_lists_are_booleans():
    layer, x = MultiHeadSelfAttention(num_heads=2), random(1, 3, 4)
    wanted = array(layer(x, padding_mask=np.array([[True, True, False]])))
    np.testing.assert_array_equal(layer(x, padding_mask=np.array([[1, 1, 0]])), wanted)
    hidden = [[True, True, False]] * 3
    np.testing.assert_allclose(layer(x, attention_mask=hidden), wanted, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4)])
def test_a_mask_for_other_keys_is_refused(shape):
    x, mask = random(1, 3, 4), np.ones(shape, bool)
    with pytest.raises(ValueError, match=r"padding_mask is not for these keys\. Expected 3 of"):
        MultiHeadSelfAttention(num_heads=2)(x, padding_mask=mask)
    with pytest.raises(ValueError, match=r"padding_mask is not for these keys\. Expected 3 of"):
        MultiHeadCrossAttention(num_heads=2)(x, x, memory_padding_mask=mask)


@pytest.mark.parametrize("name", ["use_causal_mask", "return_attention_scores"])
def test_a_switch_of_a_call_is_no_string(name):
    with pytest.raises(ValueError, match=f"{name} is a switch"):
        MultiHeadSelfAttention(num_heads=2)(random(1, 3, 4), **{name: "False"})
