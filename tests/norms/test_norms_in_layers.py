"""Norms inside Add & Norm, stacks and models: masks, sides, and batch norm's leak."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from norms_reference import EPSILON, NAMES, B, D, T, array, batch_norm, make, random, weights_of

from keras_addnorm import norms
from keras_addnorm.layers import (
    AddNorm,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.schemes import StackPosition

MASK = np.array([[True, True, False], [True, False, False]])
SIDES = {"encoder": "batch_norm", "decoder": "layer_norm"}
SIZES = {
    "source_vocabulary_size": 11,
    "target_vocabulary_size": 11,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "hidden_dim": 6,
    "intermediate_dim": 7,
    "num_heads": 2,
    "max_length": 5,
    "dropout": 0.0,
}


# Batch norm


def test_padding_is_left_out_of_the_statistics():
    layer, x = make("batch_norm"), random(B, T, D)
    found = array(layer(x, padding_mask=MASK, training=True))
    np.testing.assert_allclose(found, batch_norm(x, *weights_of(layer), mask=MASK), rtol=1e-11)


def test_content_and_amount_of_padding_change_nothing():
    layer, x = make("batch_norm"), random(B, T, D)
    before = array(layer(x, padding_mask=MASK, training=True))[MASK]
    longer = np.concatenate([np.where(MASK[..., None], x, 1e3), random(B, 4, D, seed=9)], axis=1)
    mask = np.pad(MASK, ((0, 0), (0, 4)))
    after = array(layer(longer, padding_mask=mask, training=True))[mask]
    np.testing.assert_allclose(after, before, rtol=1e-11, atol=1e-12)


def test_the_implicit_mask_does_the_same():
    layer = norms.get("batch_norm")(epsilon=EPSILON)
    x = keras.layers.Embedding(7, D, mask_zero=True)(np.array([[4, 5, 0], [6, 0, 0]]))
    found = array(layer(x, training=True))
    expected = batch_norm(array(x), np.ones(D), np.zeros(D), mask=MASK)
    np.testing.assert_allclose(found[MASK], expected[MASK], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_moving_averages_are_those_of_the_real_positions(jit_compile):
    layer = make("batch_norm", momentum=0.7)
    step = tf.function(
        lambda x, mask: layer(x, padding_mask=mask, training=True), jit_compile=jit_compile
    )
    mean, variance = np.zeros(D), np.ones(D)
    for seed in (1, 2, 3):
        x = random(B, T, D, seed=seed)
        step(tf.constant(x), tf.constant(MASK))
        mean = 0.7 * mean + 0.3 * x[MASK].mean(0)
        variance = 0.7 * variance + 0.3 * x[MASK].var(0)
    np.testing.assert_allclose(layer.moving_mean, mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(layer.moving_variance, variance, rtol=1e-6)


def test_inference_uses_the_moving_averages_and_leaves_them_alone():
    layer, x = make("batch_norm"), random(B, T, D)
    mean, variance = random(D, seed=7), random(D, seed=8) ** 2
    layer.moving_mean.assign(mean)
    layer.moving_variance.assign(variance)
    gamma, beta = weights_of(layer)
    expected = gamma * (x - mean) / np.sqrt(variance + EPSILON) + beta
    for arguments in ({}, {"training": False}, {"padding_mask": MASK}):
        np.testing.assert_allclose(array(layer(x, **arguments)), expected, rtol=1e-11)
    layer.trainable = False
    np.testing.assert_allclose(array(layer(x, training=True)), expected, rtol=1e-11)
    np.testing.assert_array_equal(layer.moving_mean, mean)
    np.testing.assert_array_equal(layer.moving_variance, variance)


def test_a_batch_of_padding_leaves_the_averages_alone():
    layer = make("batch_norm")
    y = array(layer(random(B, T, D), padding_mask=np.zeros((B, T), bool), training=True))
    assert np.isfinite(y).all()
    np.testing.assert_array_equal(layer.moving_mean, np.zeros(D))
    np.testing.assert_array_equal(layer.moving_variance, np.ones(D))


@pytest.mark.parametrize("name", NAMES)
def test_only_batch_norm_leaks_from_later_positions_to_earlier_ones(name):
    """What makes it unfit for a decoder: a later token changes an earlier output in training."""
    layer, x = make(name), random(B, T, D)

    def earlier(training):
        return array(layer(x, training=training))[:, 0]

    before, at_inference = earlier(training=True), earlier(training=False)
    x[:, 2] += 1.0
    leaks = np.abs(earlier(training=True) - before).max() > 1e-3
    assert leaks == (name == "batch_norm")
    if name != "batch_norm":
        np.testing.assert_array_equal(earlier(training=False), at_inference)


# Add & Norm and the stacks hand padding and training on


@pytest.mark.parametrize("implicit", [False, True])
def test_add_norm_hands_the_mask_on(implicit):
    add_norm = AddNorm(norm="batch_norm", epsilon=EPSILON, dtype="float64")
    x, f = random(B, T, D), random(B, T, D, seed=4)
    if implicit:
        residual = keras.layers.Masking(0.0, dtype="float64")(np.where(MASK[..., None], x, 0.0))
        y = add_norm(residual, f, training=True)
    else:
        y = add_norm(x, f, padding_mask=MASK, training=True)
    expected = batch_norm(x + f, np.ones(D), np.zeros(D), mask=MASK)
    np.testing.assert_allclose(array(y)[MASK], expected[MASK], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scheme", ["post_ln", "pre_ln", "sandwich_ln"])
@pytest.mark.parametrize("implicit", [False, True])
def test_padding_changes_no_real_position_of_an_encoder_in_training(scheme, implicit):
    encoder = TransformerEncoder(
        2, num_heads=2, intermediate_dim=7, scheme=scheme, norm="batch_norm", dtype="float64"
    )
    x = random(B, T, 6)

    def run(x, mask):
        if not implicit:
            return array(encoder(x, padding_mask=mask, training=True))[mask]
        masked = keras.layers.Masking(0.0, dtype="float64")(np.where(mask[..., None], x, 0.0))
        return array(encoder(masked, training=True))[mask]

    before = run(x, MASK)
    longer = np.concatenate([np.where(MASK[..., None], x, 50.0), random(B, 4, 6, seed=9)], axis=1)
    after = run(longer, np.pad(MASK, ((0, 0), (0, 4))))
    np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-10)


def test_the_final_norm_is_told_of_training_and_padding():
    encoder = TransformerEncoder(
        1, num_heads=2, intermediate_dim=7, scheme="pre_ln", norm="batch_norm", dtype="float64"
    )
    y = array(encoder(random(B, T, 6), padding_mask=MASK, training=True))
    np.testing.assert_allclose(y[MASK].mean(0), np.zeros(6), atol=1e-10)
    assert np.abs(array(encoder.final_norm.moving_mean)).max() > 1e-4


@pytest.mark.parametrize(
    "scheme", ["pre_ln", "hybrid_norm", {"name": "gpas", "of": "hybrid_norm"}], ids=str
)
def test_averages_count_a_batch_once(scheme):
    """HybridNorm reads the norm in front of the feed-forward twice: for it, and for the skip."""
    norm = {"name": "batch_norm", "momentum": 0.7, "epsilon": EPSILON}
    place = StackPosition(1, 1, "encoder").at("feed_forward", ("self_attention", "feed_forward"))
    add_norm = AddNorm(scheme, norm, position=place, dtype="float64")
    x, arguments = random(B, T, D), {"padding_mask": MASK, "training": True}
    z = add_norm.branch_input(x, **arguments)
    y = array(add_norm(x, z, **arguments))
    np.testing.assert_allclose(add_norm.pre_norm.moving_mean, 0.3 * x[MASK].mean(0), rtol=1e-6)
    variance = 0.7 + 0.3 * x[MASK].var(0)
    np.testing.assert_allclose(add_norm.pre_norm.moving_variance, variance, rtol=1e-6)
    # Both readings have the statistics of the batch.
    expected = batch_norm(x, np.ones(D), np.zeros(D), mask=MASK)
    np.testing.assert_allclose(array(z)[MASK], expected[MASK], rtol=1e-10)
    if scheme == "pre_ln":
        np.testing.assert_array_equal(y, x + array(z))
    else:
        np.testing.assert_allclose(y[MASK], 2 * expected[MASK], rtol=1e-10)


# Sides


DECODERS = {
    "AddNorm": lambda norm: AddNorm(norm=norm, position=StackPosition(1, 1, "decoder")),
    "layer": lambda norm: TransformerDecoderLayer(num_heads=2, intermediate_dim=7, norm=norm),
    "stack": lambda norm: TransformerDecoder(1, num_heads=2, intermediate_dim=7, norm=norm),
    "config": lambda norm: Seq2SeqConfig(11, 11, norm=norm),
    "config's side": lambda norm: Seq2SeqConfig(
        11, 11, norm={"encoder": "layer_norm", "decoder": norm}
    ),
}


@pytest.mark.parametrize("norm", ["batch_norm", {"name": "batch_norm", "momentum": 0.9}], ids=str)
@pytest.mark.parametrize("where", DECODERS)
def test_batch_norm_in_a_decoder_is_an_error_that_explains_the_leak(where, norm):
    with pytest.raises(ValueError, match=r"leaks in a decoder.*Use it in the encoder alone"):
        DECODERS[where](norm)


@pytest.mark.parametrize("where", DECODERS)
@pytest.mark.parametrize("norm", [name for name in NAMES if name != "batch_norm"])
def test_the_other_norms_may_stand_in_a_decoder(where, norm):
    assert DECODERS[where](norm)


def test_each_side_has_its_norm():
    config = Seq2SeqConfig(**SIZES, norm=SIDES, scheme="pre_ln")
    assert Seq2SeqConfig.from_json(config.to_json()) == config
    model = Seq2SeqTransformer(config)
    assert (model.encoder.norm, model.decoder.norm) == ("batch_norm", "layer_norm")
    assert isinstance(model.encoder.final_norm, norms.BatchNorm)
    assert isinstance(model.decoder.final_norm, norms.LayerNorm)


def test_a_side_that_is_missing_is_an_error():
    with pytest.raises(ValueError, match="no such norm"):
        Seq2SeqConfig(11, 11, norm={"encoder": "layer_norm"})


@pytest.mark.parametrize("layer", [TransformerEncoderLayer, TransformerDecoderLayer])
def test_a_layer_alone_takes_the_norm_of_its_side(layer):
    made = layer(num_heads=2, intermediate_dim=7, norm=SIDES)
    assert made.norm == SIDES[layer.side]
    assert layer.from_config(made.get_config()).norm == made.norm


@pytest.mark.slow
@pytest.mark.parametrize("norm", [SIDES, {"name": "dynamic_tanh", "initial_alpha": 0.8}], ids=str)
def test_a_model_trains_saves_and_loads(norm, tmp_path):
    model = Seq2SeqTransformer(Seq2SeqConfig(**SIZES, norm=norm, scheme="pre_ln"))
    batch = {
        "source": np.array([[4, 5, 2, 0], [6, 2, 0, 0]]),
        "target": np.array([[1, 7, 8], [1, 9, 0]]),
    }
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = model.get_weights()
    loss = model.fit(batch, np.array([[7, 8, 2], [9, 2, 0]]), epochs=2, verbose=0).history["loss"]
    assert loss[1] < loss[0]
    # A norm's own weights have moved, those of batch norm that are not trained included.
    for weight, old in zip(model.weights, before, strict=True):
        if "_norm" in weight.path:
            assert (array(weight) != old).any(), weight.path
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded(batch), model(batch))


@pytest.mark.parametrize("norm", NAMES)
def test_an_encoder_layer_in_half_precision(norm):
    layer = TransformerEncoderLayer(
        num_heads=2, intermediate_dim=7, norm=norm, dtype="mixed_bfloat16"
    )
    y = layer(tf.cast(random(B, T, 6), "bfloat16"), padding_mask=MASK, training=True)
    assert y.dtype == "bfloat16"
    assert np.isfinite(array(tf.cast(y, "float32"))).all()
