import keras
import numpy as np
import pytest
import tensorflow as tf
from layers_reference import array, random, randomize

from keras_addnorm.layers import PositionalEmbedding
from keras_addnorm.layers.positions import LearnedPositions, SinusoidalPositions
from keras_addnorm.layers.positions import absolute as absolute_positions

V, D, L = 11, 6, 7
IDS = np.array([[4, 5, 10, 0], [7, 0, 0, 0], [1, 2, 3, 4]])


def sinusoids(positions, hidden_dim):
    """The paper's formula, entry by entry, in float64."""
    table = np.zeros((len(positions), hidden_dim))
    for row, position in enumerate(positions):
        for channel in range(hidden_dim):
            angle = position / 10000 ** ((channel - channel % 2) / hidden_dim)
            table[row, channel] = np.cos(angle) if channel % 2 else np.sin(angle)
    return table


def test_sinusoidal_table_by_hand():
    # D = 4: frequencies 1 and 1/100.
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.8414709848, 0.5403023059, 0.0099998333, 0.9999500004],
        [0.9092974268, -0.4161468365, 0.0199986667, 0.9998000067],
    ]
    np.testing.assert_allclose(SinusoidalPositions(4)(np.arange(3)), expected, atol=1e-7)


@pytest.mark.parametrize("hidden_dim", [6, 7, 64, 1])
def test_sinusoidal_positions_equal_the_formula(hidden_dim):
    positions = np.array([0, 1, 2, 3, 50, 511, 1000, 1499])
    encoding = SinusoidalPositions(hidden_dim)(positions)
    assert encoding.dtype == "float32"
    np.testing.assert_allclose(encoding, sinusoids(positions, hidden_dim), atol=5e-7)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("timescales", ["half", "half_minus_one"])
@pytest.mark.parametrize("offset", [0, 2])
def test_variants_of_sinusoidal_positions(layout, timescales, offset):
    """The pair i has the frequency 10000^(-i / n), n = D/2 or D/2 - 1."""
    positions, pairs = np.array([0, 1, 5, 400]), 3
    layer = SinusoidalPositions(
        2 * pairs, layout=layout, timescales=timescales, offset=offset, dtype="float64"
    )
    expected = np.zeros((4, 2 * pairs))
    for row, position in enumerate(positions):
        for i in range(pairs):
            n = pairs if timescales == "half" else pairs - 1
            angle = (position + offset) / 10000 ** (i / n)
            places = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, pairs + i)
            expected[row, list(places)] = np.sin(angle), np.cos(angle)
    np.testing.assert_allclose(layer(positions), expected, atol=1e-12)
    again = SinusoidalPositions.from_config(layer.get_config())
    np.testing.assert_array_equal(again(positions), layer(positions))


def test_tensor2tensors_last_frequency_is_one_in_10000():
    """D = 4 by hand: sin p, sin p/10000, cos p, cos p/10000."""
    layer = SinusoidalPositions(4, layout="halves", timescales="half_minus_one", dtype="float64")
    expected = [[np.sin(3), np.sin(3e-4), np.cos(3), np.cos(3e-4)]]
    np.testing.assert_allclose(layer(np.array([3])), expected, atol=1e-12)


@pytest.mark.parametrize("hidden_dim", [64, 512])
def test_far_positions_are_exact_to_a_millionth(hidden_dim):
    positions = np.arange(4960, 5001)
    encoding = SinusoidalPositions(hidden_dim)(positions)
    np.testing.assert_allclose(encoding, sinusoids(positions, hidden_dim), atol=1e-6)


def test_float64_positions_are_exact_in_float64():
    positions = np.array([0, 1, 77, 5000])
    encoding = SinusoidalPositions(64, dtype="float64")(positions)
    assert encoding.dtype == "float64"
    np.testing.assert_allclose(encoding, sinusoids(positions, 64), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_rounds_the_result_and_not_the_angle(dtype):
    positions = np.array([0, 1, 1999, 4097])
    encoding = SinusoidalPositions(64, dtype=dtype)(positions)
    expected = sinusoids(positions, 64)
    step = 2.0**-11 if dtype == "float16" else 2.0**-8
    np.testing.assert_allclose(array(tf.cast(encoding, "float32")), expected, atol=step)


def embedding(dtype="float64", **arguments):
    return randomize(PositionalEmbedding(V, D, dtype=dtype, **arguments))


def test_sinusoidal_embedding_equals_the_formula():
    layer = embedding()
    expected = array(layer.embeddings)[IDS] * np.sqrt(D) + sinusoids(range(4), D)
    np.testing.assert_allclose(layer(IDS), expected, atol=1e-9)


def test_learned_embedding_equals_the_formula():
    layer = embedding(positions="learned", max_length=L)
    table = array(layer.position_encoding.embeddings)
    assert table.shape == (L, D)
    expected = array(layer.embeddings)[IDS] * np.sqrt(D) + table[:4]
    np.testing.assert_allclose(layer(IDS), expected, rtol=1e-12)


def test_scale_norm_and_bias_equal_the_formula():
    layer = embedding(scale=0.3, norm="rms_norm", epsilon=0.1, use_logits_bias=True)
    x = array(layer.embeddings)[IDS] * 0.3 + sinusoids(range(4), D)
    gain, bias = array(layer.embedding_norm.scale), array(layer.logits_bias)
    expected = gain * x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(layer(IDS), expected, rtol=1e-9)
    hidden = random(2, 3, D)
    logits = hidden @ array(layer.embeddings).T + bias
    np.testing.assert_allclose(layer(hidden, reverse=True), logits, rtol=1e-9)
    assert PositionalEmbedding.from_config(layer.get_config()).get_config() == layer.get_config()


def test_the_first_token_of_a_target_is_never_masked():
    y = PositionalEmbedding(V, D, pad_id=7, is_first_real=True)(IDS)
    expected = np.array([[True] * 4, [True] * 4, [True] * 4])
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(y), expected)
    y = PositionalEmbedding(V, D, pad_id=0, is_first_real=True)(IDS[:, 2:])
    expected = [[True, False], [True, False], [True, True]]
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(y), expected)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_start_index_continues_a_sequence(positions, as_tensor):
    layer = embedding(positions=positions, max_length=L)
    whole = layer(IDS)
    start = tf.constant(2) if as_tensor else 2
    np.testing.assert_array_equal(layer(IDS[:, 2:], start_index=start), whole[:, 2:])


def test_the_tied_projection_is_the_transposed_table():
    layer, hidden = embedding(), random(2, 3, D)
    expected = hidden @ array(layer.embeddings).T
    np.testing.assert_allclose(layer(hidden, reverse=True), expected, rtol=1e-12)
    assert len(layer.weights) == 1


def test_logits_are_float32_in_half_precision():
    layer = PositionalEmbedding(V, D, dtype="mixed_float16")
    hidden = layer(IDS)
    assert (hidden.dtype, layer(hidden, reverse=True).dtype) == (tf.float16, tf.float32)


def test_the_embedding_and_the_tied_logits_start_near_variance_one():
    layer = PositionalEmbedding(1009, 64)
    table = array(layer.embeddings)
    assert table.std() * 8 == pytest.approx(1.0, rel=0.02)
    normalised = np.random.default_rng(1).normal(size=(2, 3, 64))
    assert array(layer(normalised, reverse=True)).std() == pytest.approx(1.0, rel=0.1)


def test_large_ids_survive_half_precision():
    layer = PositionalEmbedding(5003, D, dtype="mixed_float16")
    rows = array(layer(np.array([[4999, 5000, 5001]])))[0] - array(layer(np.zeros((1, 3), int)))[0]
    expected = (array(layer.embeddings)[4999:5002] - array(layer.embeddings)[0]) * np.sqrt(D)
    np.testing.assert_allclose(rows, expected, atol=2e-2)
    assert (np.abs(rows[0] - rows[1]) > 1e-2).any()


@pytest.mark.parametrize("pad_id", [0, 4])
def test_the_mask_is_true_at_real_tokens(pad_id):
    y = PositionalEmbedding(V, D, pad_id=pad_id)(IDS)
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(y), pad_id != IDS)


def test_without_mask_zero_there_is_no_mask():
    y = PositionalEmbedding(V, D, mask_zero=False)(IDS)
    assert keras.src.backend.get_keras_mask(y) is None


def test_the_projection_hands_on_the_mask_of_the_hidden_states():
    layer = PositionalEmbedding(V, D)
    logits = layer(layer(IDS), reverse=True)
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(logits), IDS != 0)


def test_a_functional_model_embeds_and_projects_with_one_table():
    layer = embedding("float32")
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, layer(layer(ids), reverse=True))
    assert model.output.shape == (None, None, V)
    expected = layer(layer(IDS), reverse=True)
    np.testing.assert_allclose(model(IDS), expected, rtol=1e-6)


def test_dropout_only_while_training():
    layer = PositionalEmbedding(V, D, dropout=0.5)
    np.testing.assert_array_equal(layer(IDS), layer(IDS, training=False))
    zeros = (array(layer(IDS, training=True)) == 0).mean()
    assert 0.25 < zeros < 0.75


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary_size": 0, "hidden_dim": D}, "vocabulary_size has to be a positive integer"),
        ({"vocabulary_size": V, "hidden_dim": 0}, "hidden_dim has to be a positive integer"),
        ({"vocabulary_size": V, "hidden_dim": D, "positions": "rope"}, "sinusoidal, learned"),
        (
            {"vocabulary_size": V, "hidden_dim": D, "positions": "learned"},
            "Expected max_length >= 1. Received: None",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        PositionalEmbedding(**arguments)


@pytest.mark.parametrize(
    ("inputs", "arguments", "message"),
    [
        (np.zeros(4, int), {}, r"two axes. Expected shape \(batch, length\). Received: \(4,\)"),
        (np.zeros((2, 3, 4), int), {}, "two axes"),
        (np.zeros((2, 3)), {}, "have to be integers.*Received: float"),
        (np.zeros((2, 3, D + 1)), {"reverse": True}, r"Expected shape \(batch, length, 6\)"),
        (np.zeros((2, D)), {"reverse": True}, r"Expected shape \(batch, length, 6\)"),
    ],
)
def test_bad_inputs_are_named(inputs, arguments, message):
    with pytest.raises(ValueError, match=message):
        PositionalEmbedding(V, D)(inputs, **arguments)


@pytest.mark.parametrize(("length", "start"), [(L + 1, 0), (2, L - 1), (1, L)])
def test_learned_positions_end_at_max_length(length, start):
    layer = PositionalEmbedding(V, D, positions="learned", max_length=L)
    layer(np.ones((1, length), int)[:, : L - start], start_index=start) if start < L else None
    message = f"Expected at most {L} positions. Received: {length + start}. Raise max_length"
    with pytest.raises(ValueError, match=message):
        layer(np.ones((1, length), int), start_index=start)


def test_sinusoidal_positions_do_not_end():
    layer = PositionalEmbedding(V, D, max_length=L, dtype="float64")
    expected = array(layer.embeddings)[1] * np.sqrt(D) + sinusoids([L + 3], D)[0]
    np.testing.assert_allclose(layer(np.ones((1, L + 4), int))[0, -1], expected, atol=1e-9)


def test_an_id_outside_the_vocabulary_is_an_error_on_tensorflow():
    layer = PositionalEmbedding(V, D)
    for wrong in (V, -1):
        with pytest.raises(ValueError, match=f"Expected 0 <= id < {V}. Received: ids from"):
            layer(np.array([[1, wrong]]))
    # A function that is traced cannot look; TensorFlow does, on CPUs and without XLA.
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{V} is not in \[0, {V}\)"):
        tf.function(layer)(tf.constant([[1, V]]))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_config_round_trip(positions):
    layer = PositionalEmbedding(
        V,
        D,
        max_length=L,
        positions=positions,
        mask_zero=False,
        pad_id=3,
        dropout=0.2,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=0.3),
        dtype="mixed_bfloat16",
        name="e",
    )
    clone = PositionalEmbedding.from_config(layer.get_config())
    assert clone.get_config() == layer.get_config()
    default = PositionalEmbedding(V, D, positions=positions, max_length=L)
    assert PositionalEmbedding.from_config(default.get_config()).embeddings_initializer is None


@pytest.mark.parametrize("layer_class", [SinusoidalPositions, LearnedPositions])
def test_config_round_trip_of_positions(layer_class):
    layer = layer_class(D, max_length=L, name="p")
    assert layer_class.from_config(layer.get_config()).get_config() == layer.get_config()


def test_an_unknown_position_encoding_lists_what_there_is():
    with pytest.raises(ValueError, match=r"one of none, sinusoidal, learned, .*Received: 'rope'"):
        absolute_positions("rope")


@pytest.mark.parametrize("positions", ["none", "rotary", "alibi", "t5", "shaw"])
def test_with_positions_that_are_the_attentions_task_nothing_is_added(positions):
    layer = embedding(positions=positions)
    expected = array(layer.embeddings)[IDS] * np.sqrt(D)
    np.testing.assert_allclose(layer(IDS, start_index=3), expected, rtol=1e-12)
    assert len(layer.weights) == 1


@pytest.mark.parametrize("wrong", [-1, 11, 2**32 + 5])
def test_a_traced_id_without_a_row_is_nan(wrong):
    import tensorflow as tf

    embedding = PositionalEmbedding(11, hidden_dim=4)
    ids = np.array([[3, 5, wrong]])
    found = np.asarray(tf.function(embedding, jit_compile=True)(tf.constant(ids)))
    np.testing.assert_allclose(found[:, :2], np.asarray(embedding(ids[:, :2])), rtol=1e-6)
    assert np.isnan(found[0, 2]).all()


@pytest.mark.parametrize("dtype", ["int64", "uint32", "uint64"])
def test_an_id_that_32_bits_cannot_hold_is_no_other_one(dtype):
    """On JAX Keras makes int32 of ids, and 2**32 + 4 was 4."""
    layer = PositionalEmbedding(vocabulary_size=V, hidden_dim=D)
    large = np.array([[4, 2**31 + 4 if dtype == "uint32" else 2**32 + 4]], dtype)
    with pytest.raises(ValueError, match=r"outside the vocabulary\. Expected 0 <= id < 11"):
        layer(large)
    np.testing.assert_array_equal(layer(np.array([[4]], dtype)), layer(np.array([[4]], "int32")))
