import keras
import numpy as np
import pytest
import tensorflow as tf
from layers_reference import B, D, H, K, S, T, array, attention, padding, random, randomize

from keras_addnorm.layers import MultiHeadCrossAttention, MultiHeadSelfAttention

WIDTH_OF_MEMORY = 17

CAUSAL = np.tri(T, dtype=bool)
BY_QUERY = np.random.default_rng(8).random((T, T)) < 0.6
BY_ROW = np.random.default_rng(9).random((B, T, T)) < 0.6
PADDING = padding([T, 3], T)

MASKS = {
    "none": ({}, True),
    "padding": ({"padding_mask": PADDING}, PADDING[:, None]),
    "causal": ({"use_causal_mask": True}, CAUSAL),
    "rank 2": ({"attention_mask": BY_QUERY}, BY_QUERY),
    "rank 3": ({"attention_mask": BY_ROW}, BY_ROW),
    "all": (
        {"padding_mask": PADDING, "attention_mask": BY_ROW, "use_causal_mask": True},
        PADDING[:, None] & BY_ROW & CAUSAL,
    ),
}


def self_attention(dtype="float64", **arguments):
    layer = MultiHeadSelfAttention(H, dtype=dtype, **arguments)
    layer.build((B, T, D))
    return randomize(layer)


def cross_attention(dtype="float64", **arguments):
    layer = MultiHeadCrossAttention(H, dtype=dtype, **arguments)
    layer.build((B, T, D), (B, S, WIDTH_OF_MEMORY))
    return randomize(layer)


@pytest.mark.parametrize("mask", MASKS)
def test_self_attention_equals_the_formula(mask):
    arguments, visible = MASKS[mask]
    layer, x = self_attention(), random(B, T, D)
    expected, expected_weights = attention(layer, x, x, visible)
    y, weights = layer(x, return_attention_scores=True, **arguments)
    np.testing.assert_allclose(y, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(layer(x, **arguments), y)


@pytest.mark.parametrize("mask", ["none", "padding", "rank 2", "rank 3"])
def test_cross_attention_equals_the_formula(mask):
    own_padding = padding([4, S], S)
    by_query = np.random.default_rng(8).random((T, S)) < 0.6
    by_row = np.random.default_rng(9).random((B, T, S)) < 0.6
    arguments, visible = {
        "none": ({}, True),
        "padding": ({"memory_padding_mask": own_padding}, own_padding[:, None]),
        "rank 2": ({"attention_mask": by_query}, by_query),
        "rank 3": (
            {"attention_mask": by_row, "memory_padding_mask": own_padding},
            by_row & own_padding[:, None],
        ),
    }[mask]
    layer, x = cross_attention(), random(B, T, D)
    memory = random(B, S, WIDTH_OF_MEMORY, seed=4)
    expected, expected_weights = attention(layer, x, memory, visible)
    y, weights = layer(x, memory, return_attention_scores=True, **arguments)
    assert weights.shape == (B, H, T, S)
    np.testing.assert_allclose(y, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-11, atol=1e-11)


def test_a_head_may_have_a_width_of_its_own():
    layer = MultiHeadSelfAttention(num_heads=2, head_dim=7, dtype="float64")
    x = random(B, T, D)
    layer(x)
    randomize(layer)
    np.testing.assert_allclose(layer(x), attention(layer, x, x, heads=2)[0], rtol=1e-11, atol=1e-11)
    assert layer.query_projection.kernel.shape == (D, 14)
    assert layer.output_projection.kernel.shape == (14, D)


def test_without_biases():
    layer = MultiHeadSelfAttention(H, use_bias=False)
    layer.build((B, T, D))
    assert [w.path.split("/")[-1] for w in layer.weights] == ["kernel"] * 4


def test_in_float32_the_error_is_a_rounding_error():
    layer, x = self_attention("float32"), random(B, T, D)
    expected = attention(layer, x, x, CAUSAL)[0]
    np.testing.assert_allclose(layer(x, use_causal_mask=True), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("size", [1.0, 200.0])
def test_with_nothing_to_attend_to_there_are_zeros_and_finite_gradients(dtype, size):
    x = tf.cast(size * random(B, T, D), dtype)
    layer = MultiHeadSelfAttention(H, use_bias=False, dtype=dtype)
    mask = np.ones((B, T, T), bool)
    mask[0, 2] = False
    mask[1] = False
    layer.build(x.shape)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y, weights = layer(x, attention_mask=mask, return_attention_scores=True)
        # Half the loss: in float16 the gradient of a large sum has to stay below 65504.
        loss = tf.reduce_sum(tf.cast(y, "float32")) * 1e-3
    assert y.dtype == dtype
    empty = ~mask.any(-1)
    y, weights = array(tf.cast(y, "float32")), array(tf.cast(weights, "float32"))
    assert np.isfinite(y).all()
    np.testing.assert_array_equal(y[empty], 0.0)
    np.testing.assert_array_equal(weights.transpose(0, 2, 1, 3)[empty], 0.0)
    assert (np.abs(y[~empty]).max(-1) > 0).all()
    gradients = tape.gradient(loss, [x, *layer.trainable_variables])
    gradients = [array(tf.cast(g, "float32")) for g in gradients]
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(gradients[0][1], 0.0)
    assert np.abs(gradients[0][0]).max() > 0


def test_with_nothing_to_attend_to_the_output_is_the_bias_of_the_projection():
    layer = self_attention()
    y = layer(random(B, T, D), padding_mask=np.zeros((B, T), bool))
    expected = np.broadcast_to(array(layer.output_projection.bias), (B, T, D))
    np.testing.assert_array_equal(y, expected)


def test_dropout_falls_on_the_weights_only_while_training():
    layer = self_attention(dropout=0.5)
    x = random(B, T, D)
    np.testing.assert_array_equal(layer(x), layer(x, training=False))
    assert np.abs(array(layer(x, training=True)) - array(layer(x))).max() > 1e-3


@pytest.mark.parametrize(("mask", "is_even"), [(np.ones((B, T), bool), True), (PADDING, False)])
def test_attention_to_equal_keys_is_even(mask, is_even):
    x = np.broadcast_to(random(B, 1, D), (B, T, D))
    _, weights = self_attention()(x, padding_mask=mask, return_attention_scores=True)
    np.testing.assert_allclose(weights[0], 1 / T, rtol=1e-12)
    np.testing.assert_allclose(weights[1, :, :, :3], 1 / (T if is_even else 3), rtol=1e-12)


@pytest.mark.parametrize(
    ("hidden_dim", "num_heads", "advice"),
    [
        (10, 4, "num_heads=2 or 5"),
        (12, 5, "num_heads=4 or 6"),
        (7, 3, "num_heads=1 or 7"),
        (6, 7, "num_heads=6,"),
    ],
)
def test_heads_that_do_not_divide_the_width(hidden_dim, num_heads, advice):
    message = f"hidden_dim={hidden_dim}, num_heads={num_heads}. Use {advice}"
    with pytest.raises(ValueError, match=message):
        MultiHeadSelfAttention(num_heads)(np.zeros((B, T, hidden_dim)))


@pytest.mark.parametrize("num_heads", [0, -1])
def test_heads_have_to_be_positive(num_heads):
    with pytest.raises(
        ValueError, match=f"num_heads has to be a positive integer. Received: {num_heads}"
    ):
        MultiHeadSelfAttention(num_heads)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"padding_mask": np.ones((B, T, T), bool)}, "padding_mask has the wrong number of axes"),
        ({"attention_mask": np.ones(T, bool)}, "attention_mask has the wrong number of axes"),
        ({"cache": np.zeros((B, 2, T, H, K))}, "Received: only cache"),
        ({"cache_update_index": 0}, "Received: only cache_update_index"),
    ],
)
def test_bad_calls_of_self_attention(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadSelfAttention(H)(np.zeros((B, T, D)), **arguments)


def test_cross_attention_needs_something_to_attend_to():
    with pytest.raises(ValueError, match=r"nothing to attend to. Expected memory or cache"):
        MultiHeadCrossAttention(H)(np.zeros((B, T, D)))


@pytest.mark.parametrize("layer_class", [MultiHeadSelfAttention, MultiHeadCrossAttention])
def test_an_unknown_width_is_an_error(layer_class):
    with pytest.raises(ValueError, match=r"width of the residual stream.*Received.*None"):
        layer_class(H).build((B, T, None))


def test_each_projection_has_its_initializer_and_the_gain_falls_on_value_and_output():
    constant = keras.initializers.Constant
    layer = MultiHeadSelfAttention(
        H,
        query_initializer=constant(1.0),
        key_initializer=constant(2.0),
        value_initializer=constant(3.0),
        output_initializer=constant(4.0),
        bias_initializer=constant(5.0),
        init_gain=0.5,
    )
    layer.build((B, T, D))
    for name, value in (("query", 1.0), ("key", 2.0), ("value", 1.5), ("output", 2.0)):
        projection = getattr(layer, f"{name}_projection")
        np.testing.assert_array_equal(projection.kernel, np.full((D, D), value))
        np.testing.assert_array_equal(projection.bias, np.full((D,), 5.0))


# Caches


def test_cached_self_attention_equals_the_full_pass_step_by_step():
    layer, x = self_attention("float32"), random(B, T, D)
    expected, expected_weights = layer(x, use_causal_mask=True, return_attention_scores=True)
    cache = layer.empty_cache(B, T)
    assert cache.shape == (B, 2, T, H, K)
    for t in range(T):
        y, weights, cache = layer(
            x[:, t : t + 1], cache=cache, cache_update_index=t, return_attention_scores=True
        )
        np.testing.assert_allclose(y[:, 0], expected[:, t], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(weights[:, :, 0], expected_weights[:, :, t], atol=1e-5)


@pytest.mark.parametrize("chunks", [(3, 2), (5,), (1, 4), (2, 1, 2)])
def test_several_positions_at_once_in_a_longer_cache(chunks):
    layer, x = self_attention("float32"), random(B, T, D)
    expected = layer(x, use_causal_mask=True)
    cache, start = layer.empty_cache(B, T + 2), 0
    for size in chunks:
        y, cache = layer(x[:, start : start + size], cache=cache, cache_update_index=start)
        np.testing.assert_allclose(y, expected[:, start : start + size], rtol=1e-5, atol=1e-5)
        start += size
    np.testing.assert_array_equal(cache[:, :, T:], 0.0)


def test_the_padding_mask_of_a_cache_speaks_of_its_positions():
    layer, x = self_attention("float32"), random(B, T, D)
    visible = np.ones((B, T), bool)
    visible[1, 1] = False
    expected = layer(x, padding_mask=visible, use_causal_mask=True)
    y, cache = layer(
        x[:, :3], padding_mask=visible, cache=layer.empty_cache(B, T), cache_update_index=0
    )
    np.testing.assert_allclose(y, expected[:, :3], rtol=1e-5, atol=1e-5)
    y, _ = layer(x[:, 3:], padding_mask=visible, cache=cache, cache_update_index=3)
    np.testing.assert_allclose(y, expected[:, 3:], rtol=1e-5, atol=1e-5)


def test_the_cache_that_was_passed_in_stays_as_it_was():
    layer = self_attention("float32")
    cache = layer.empty_cache(B, T)
    layer(random(B, 1, D), cache=cache, cache_update_index=0)
    np.testing.assert_array_equal(cache, 0.0)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("T", [1, 2])
def test_beams_share_the_projected_memory_of_their_sentence(num_beams, T):
    layer, x = cross_attention("float32"), random(B * num_beams, T, D)
    memory, mask = random(B, S, WIDTH_OF_MEMORY, seed=4), padding([4, S], S)
    expected, expected_weights = layer(
        x,
        np.repeat(memory, num_beams, 0),
        memory_padding_mask=np.repeat(mask, num_beams, 0),
        return_attention_scores=True,
    )
    cache = layer.project_memory(memory)
    assert cache.shape == (B, 2, S, H, K)
    y, weights = layer(x, cache=cache, memory_padding_mask=mask, return_attention_scores=True)
    assert y.shape == (B * num_beams, T, D)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(layer(x, cache=cache, memory_padding_mask=mask), y)


@pytest.mark.parametrize("layer_class", [MultiHeadSelfAttention, MultiHeadCrossAttention])
def test_config_round_trip(layer_class):
    layer = layer_class(
        H,
        head_dim=4,
        dropout=0.1,
        use_bias=False,
        query_initializer="he_normal",
        key_initializer=keras.initializers.RandomNormal(stddev=0.3),
        value_initializer="zeros",
        output_initializer="ones",
        bias_initializer="ones",
        init_gain=0.7,
        dtype="mixed_float16",
        name="a",
    )
    clone = layer_class.from_config(layer.get_config())
    assert clone.get_config() == layer.get_config()
    assert clone.key_initializer.stddev == 0.3
