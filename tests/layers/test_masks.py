import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.layers.masks import causal_mask, combine_masks, masked_softmax

F, T = False, True


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
        causal=np.array([[T, F, F], [T, T, T]]),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"padding_mask": np.ones((2, 3, 3))}, r"`padding_mask`.*\(batch, keys\).*\(2, 3, 3\)"),
        ({"attention_mask": np.ones((3,))}, r"`attention_mask`.*\(batch, queries, keys\)"),
    ],
)
def test_a_mask_of_the_wrong_rank_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        combine_masks(**arguments)
