"""Observing changes nothing, forgets nothing, and puts everything back."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from filled_models import SOURCE, SUBLAYERS, TARGET, array, batch, tiny_model

from keras_addnorm import schemes
from keras_addnorm.diagnostics import observe
from keras_addnorm.layers import (
    AddNorm,
    TransformerDecoder,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from keras_addnorm.layers.sublayers import named_add_norms


def _schemes(model):
    return [add_norm.scheme for add_norm in named_add_norms(model).values()]


@pytest.mark.fast_cases(5)
@pytest.mark.parametrize("scheme", schemes.names())
def test_every_scheme_gives_the_same_bits_and_its_own_formula(scheme):
    model = tiny_model(scheme=scheme)
    expected, before = array(model(batch())), _schemes(model)
    with observe(model) as observation:
        found = array(model(batch()))
    np.testing.assert_array_equal(found, expected)
    assert _schemes(model) == before
    assert tuple(record.name for record in observation) == SUBLAYERS
    for record in observation:
        add_norm = named_add_norms(model)[record.name]
        before = record.residual if record.state is None else record.state
        branch = record.branch
        after = add_norm(before, lambda h, f=branch: f)
        if record.state is not None:
            after = add_norm.scheme.collapse(after)
        np.testing.assert_array_equal(
            array(record.branch_input), array(add_norm.branch_input(before))
        )
        np.testing.assert_array_equal(array(record.merged), array(after))


def test_the_stream_runs_from_record_to_record():
    model = tiny_model()
    with observe(model) as observation:
        model(batch())
    records = list(observation)
    for before, after in itertools.pairwise(records[:4]):
        np.testing.assert_array_equal(array(before.merged), array(after.residual))
    np.testing.assert_array_equal(
        array(records[0].residual), array(model.encoder_embedding(SOURCE))
    )
    np.testing.assert_array_equal(array(records[0].mask), SOURCE != 0)
    np.testing.assert_array_equal(array(records[-1].mask), TARGET != 0)
    layer = model.encoder.layers[0]
    np.testing.assert_array_equal(
        array(records[1].branch), array(layer.feed_forward(records[1].branch_input))
    )


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_inside_a_traced_function(jit_compile):
    model = tiny_model(scheme="pre_ln")

    @tf.function(jit_compile=jit_compile)
    def plain(source, target):
        return model({"source": source, "target": target})

    @tf.function(jit_compile=jit_compile)
    def watched(source, target):
        with observe(model) as observation:
            logits = model({"source": source, "target": target})
            return logits, {record.name: record.merged for record in observation}

    ids = [tf.constant(side, "int32") for side in (SOURCE, TARGET)]
    only_logits = tf.function(lambda *ids: watched(*ids)[0], jit_compile=jit_compile)
    np.testing.assert_array_equal(only_logits(*ids), plain(*ids))
    # XLA fuses otherwise what it also has to return.
    logits, merged = watched(*ids)
    np.testing.assert_allclose(logits, plain(*ids), rtol=1e-5, atol=1e-5)
    with observe(model) as observation:
        model(batch())
    assert merged.keys() == {*SUBLAYERS}
    for record in observation:
        np.testing.assert_allclose(merged[record.name], record.merged, rtol=1e-5, atol=1e-5)


def test_everything_is_put_back_after_an_error():
    model = tiny_model()
    before = _schemes(model)
    with pytest.raises(ZeroDivisionError), observe(model):
        raise ZeroDivisionError
    assert _schemes(model) == before


def test_nested_and_again():
    model = tiny_model()
    before = _schemes(model)
    with observe(model) as outer:
        with observe(model.encoder) as inner:
            model(batch())
        model(batch())
    assert (len(inner), len(outer)) == (4, 14)
    np.testing.assert_array_equal(
        array(inner["encoder/1/feed_forward"].branch),
        array(outer["encoder/1/feed_forward"].branch),
    )
    assert _schemes(model) == before
    outer.clear()
    assert len(outer) == 0


def test_dropout_is_in_the_branch():
    model = tiny_model()
    with observe(model) as observation:
        model(batch(), training=True)
    branch = array(observation["encoder/0/feed_forward"].branch)
    assert 0.2 < np.mean(branch == 0) < 0.8


def test_an_offset_moves_the_stream():
    model = tiny_model(scheme="pre_ln")
    moved = keras.random.normal((3, 7, 6))
    name = "encoder/1/self_attention"
    with observe(model) as plain:
        model(batch())
    with observe(model, offsets={name: moved}) as found:
        model(batch())
    np.testing.assert_allclose(
        array(found[name].residual), array(plain[name].residual + moved), atol=1e-6
    )
    layer = model.encoder.layers[1]
    mask = SOURCE != 0
    h = layer.self_attention_add_norm.branch_input(found[name].residual)
    np.testing.assert_allclose(
        array(found[name].branch), array(layer.self_attention(h, padding_mask=mask)), atol=1e-5
    )


def _sequential():
    model = keras.Sequential(
        [
            keras.Input((5, 6)),
            TransformerEncoderLayer(num_heads=2, intermediate_dim=7, name="first"),
            TransformerEncoder(1, num_heads=3, intermediate_dim=11),
        ]
    )
    return model, (3, 5, 6)


def _two_encoders():
    x = keras.Input((5, 6))
    y = TransformerEncoder(1, num_heads=2, intermediate_dim=7, name="left")(x)
    z = TransformerEncoder(1, num_heads=2, intermediate_dim=7, name="right")(x)
    return keras.Model(x, AddNorm(name="join")(y, z)), (3, 5, 6)


def _shared_layer():
    x = keras.Input((5, 6))
    layer = TransformerEncoderLayer(num_heads=2, intermediate_dim=7, name="shared")
    return keras.Model(x, layer(layer(x))), (3, 5, 6)


def _decoder_only():
    decoder = TransformerDecoder(1, num_heads=2, intermediate_dim=7)
    decoder.build((3, 5, 6))
    return decoder, (3, 5, 6)


def _alone():
    layer = AddNorm(scheme="pre_ln", name="alone")
    layer.build((3, 6))
    return layer, (3, 6)


MODELS = {
    _sequential: [
        "first/self_attention",
        "first/feed_forward",
        "encoder/0/self_attention",
        "encoder/0/feed_forward",
    ],
    _two_encoders: [
        "left/layer_0/self_attention",
        "left/layer_0/feed_forward",
        "right/layer_0/self_attention",
        "right/layer_0/feed_forward",
        "join",
    ],
    _shared_layer: 2 * ["shared/self_attention", "shared/feed_forward"],
    _decoder_only: ["decoder/0/self_attention", "decoder/0/feed_forward"],
}


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_models_of_ones_own(make):
    model, shape = make()
    x = keras.random.normal(shape)
    expected = array(model(x))
    with observe(model) as observation:
        np.testing.assert_array_equal(array(model(x)), expected)
    assert [record.name for record in observation] == MODELS[make]


def test_a_layer_alone():
    layer, shape = _alone()
    x, f = keras.random.normal(shape), keras.random.normal(shape)
    with observe(layer) as observation:
        layer(x, lambda h: f)
    (record,) = observation
    assert record.name == "alone"
    np.testing.assert_array_equal(array(record.branch_input), array(layer.branch_input(x)))
    np.testing.assert_array_equal(array(record.merged), array(x + f))


@pytest.mark.parametrize("nothing", [keras.layers.Dense(3), AddNorm, 7])
def test_nothing_to_observe(nothing):
    with pytest.raises(ValueError, match="no Add & Norm"), observe(nothing):
        pass


def test_names_that_do_not_exist():
    model = tiny_model()
    with pytest.raises(ValueError, match="no such sublayer"), observe(model, offsets={"x": 0}):
        pass
    with observe(model) as observation:
        model(batch())
    with pytest.raises(KeyError, match="No such sublayer has run"):
        observation["encoder/2/feed_forward"]
