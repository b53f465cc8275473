"""Every scheme and every norm, in a whole model: formula, gradients, cache, files, final norm.

The model is as small as one that has every part can be. A scheme calls its norms without knowing
which they are: every scheme takes two norms, every norm a scheme of each shape. A step of a layer
under XLA takes more than a second to compile: every scheme whose operations are not those of
another takes one with layer norm, every norm takes one with a scheme that has it everywhere. In the
product, only the Add & Norm itself does.
"""

import functools
import itertools

import layers_reference as reference
import numpy as np
import pytest
import tensorflow as tf
from tiers import for_releases

from keras_addnorm import norms, schemes
from keras_addnorm.layers import (
    AddNorm,
    Projection,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.schemes import StackPosition

HEADS = reference.H
SOURCE = np.array([[4, 5, 6, 2], [3, 2, 0, 0]])
TARGET = np.array([[1, 4, 5], [1, 7, 0]])
INPUTS = {"source": SOURCE, "target": TARGET}

# Half the layers of the encoder, and none of the decoder's one; a count that soon comes in.
FIELDS = {
    "mix_ln": {"name": "mix_ln", "share": 0.5},
    "pro_res": {"name": "pro_res", "warmup_steps": 1},
}

# The shapes that a plan has: a norm behind, one before, before and on the branch, a scaled stream,
# a trained skip, a trained branch.
PLANS = ("post_ln", "sandwich_ln", "deep_norm", "admin", "layer_scale")
OTHERS = norms.names()[1:]
# HybridNorm has norms inside the attention, where none may mix positions.
IMPOSSIBLE = ("hybrid_norm", "batch_norm")
PAIRS = [
    *((scheme, "layer_norm") for scheme in reference.SCHEMES),
    *zip(reference.SCHEMES, itertools.cycle(OTHERS), strict=False),
    *itertools.product(PLANS, OTHERS),
]
PRODUCT = [pair for pair in dict.fromkeys(PAIRS) if pair != IMPOSSIBLE]
# Each scheme and each norm: a scheme calls its norms without knowing which they are.
TRAINED = [
    *((scheme, "layer_norm") for scheme in reference.SCHEMES),
    *(("sandwich_ln", norm) for norm in OTHERS),
]
# They compute what others do: Post-LN, Sandwich-LN with DeepNorm, nothing.
OF_KNOWN_PARTS = ("ds_init", "keel", "t_fixup")
STEPPED = [(scheme, norm) for scheme, norm in TRAINED if scheme not in OF_KNOWN_PARTS]
# The order of weights is the plan's; which weights there are is the norm's.
STORED = [*((scheme, "layer_norm") for scheme in PLANS), ("post_ln", "none")]


def build(scheme, norm):
    is_for_encoders = norm == "batch_norm"
    config = Seq2SeqConfig(
        source_vocabulary_size=9,
        target_vocabulary_size=8,
        num_encoder_layers=2 if scheme == "mix_ln" else 1,
        num_decoder_layers=1,
        hidden_dim=2 * HEADS,
        intermediate_dim=5,
        num_heads=HEADS,
        max_length=7,
        dropout=0.0,
        scheme=FIELDS.get(scheme, scheme),
        norm={"encoder": norm, "decoder": "layer_norm"} if is_for_encoders else norm,
    )
    return Seq2SeqTransformer(config, dtype="float64")


@functools.cache
def random_model(scheme, norm):
    model = build(scheme, norm)
    rng = np.random.default_rng(5)
    for weight in model.weights:
        start = reference.array(weight)
        weight.assign(start + rng.normal(scale=0.15, size=start.shape))
    return model


def test_no_scheme_is_left_out():
    same = {"peri_ln"}  # another name of sandwich_ln
    # Those of several streams have tests of their own.
    found = [schemes.get(name) for name in schemes.names()]
    streams = [isinstance(scheme, schemes.StreamScheme) for scheme in found]
    one_stream = {name for name, many in zip(schemes.names(), streams, strict=True) if not many}
    assert {*reference.SCHEMES} | same == one_stream


@pytest.mark.fast_cases(30)
@pytest.mark.parametrize(("scheme", "norm"), PRODUCT)
def test_the_model_equals_the_formula(scheme, norm):
    model = random_model(scheme, norm)
    keys = (SOURCE != 0)[:, None]
    memory = reference.array(model.encoder_embedding(SOURCE))
    for layer in model.encoder.layers:
        memory = reference.encoder_layer(layer, scheme, memory, keys)
    y = reference.array(model.decoder_embedding(TARGET))
    memory = reference.final_norm(model.encoder, memory)
    for layer in model.decoder.layers:
        y = reference.decoder_layer(layer, scheme, y, memory, (TARGET != 0)[:, None], keys)
    y = reference.final_norm(model.decoder, y)
    expected = y @ reference.array(model.decoder_embedding.embeddings).T
    logits = reference.array(model(INPUTS))
    # The logits leave a float64 model in float64.
    np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.fast_cases(11)
@pytest.mark.parametrize(("scheme", "norm"), TRAINED)
def test_gradients_are_central_differences(scheme, norm):
    """Along one direction in all weights at once; `test_gradients` takes them one by one."""
    model = random_model(scheme, norm)
    opened = {w.path: reference.array(w) for w in model.weights}
    reference.shut_gates(model)
    weights = [w.value for w in model.trainable_variables]
    rng = np.random.default_rng(6)
    directions = [rng.normal(size=w.shape) for w in weights]
    cotangent = rng.normal(size=(2, 3, 8))

    with tf.GradientTape() as tape:
        value = tf.reduce_sum(model(INPUTS) * cotangent)
    slope = sum(
        np.sum(tf.convert_to_tensor(gradient).numpy() * direction)
        for gradient, direction in zip(tape.gradient(value, weights), directions, strict=True)
    )

    step = 1e-7  # small: the kinks of relu are rarely that near
    starts = [w.numpy() for w in weights]
    values = []
    for sign in (1, -1):
        for weight, start, direction in zip(weights, starts, directions, strict=True):
            weight.assign(start + sign * step * direction)
        values.append(np.sum(model(INPUTS).numpy() * cotangent))
    for weight in model.weights:
        weight.assign(opened[weight.path])
    difference = (values[0] - values[1]) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-5, atol=1e-5)


@pytest.mark.fast_cases(11)
@pytest.mark.parametrize(("scheme", "norm"), TRAINED)
def test_cached_decoding_equals_the_full_pass(scheme, norm):
    model = random_model(scheme, norm)
    memory, mask = model.encode(SOURCE)
    cache = model.initial_cache(memory, 2, TARGET.shape[1])
    expected = reference.array(model(INPUTS))
    for index in range(TARGET.shape[1]):
        logits, cache = model.decode_step(TARGET[:, index], cache, index, mask)[:2]
        real = TARGET[:, index] != 0
        np.testing.assert_allclose(
            reference.array(logits)[real], expected[real, index], rtol=1e-5, atol=1e-5
        )


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize(("scheme", "norm"), STORED)
def test_weights_come_back_into_a_model_of_the_same_config(scheme, norm, tmp_path):
    model = random_model(scheme, norm)
    model.save_weights(tmp_path / "m.weights.h5")
    config = Seq2SeqConfig.from_json(model.config.to_json())
    other = Seq2SeqTransformer(config, dtype="float64")
    assert config == model.config
    assert not np.allclose(other(INPUTS), model(INPUTS))
    other.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(other(INPUTS), model(INPUTS))


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "norm"), for_releases(STEPPED, but=STEPPED[::3]))
def test_a_step_under_xla_changes_every_weight(scheme, norm):
    """Of one layer: a whole model takes five seconds to compile."""
    is_for_encoders = norm == "batch_norm"
    kind = TransformerEncoderLayer if is_for_encoders else TransformerDecoderLayer
    layer = kind(
        num_heads=HEADS,
        intermediate_dim=5,
        scheme=FIELDS.get(scheme, scheme),
        norm=norm,
        drop_path=0.1,
        position=StackPosition(2, 2, kind.side),
    )
    x = tf.constant(reference.random(7, 4, 2 * HEADS), "float32")
    inputs = [x] if is_for_encoders else [x, x[:, ::-1]]
    layer.build(*(each.shape for each in inputs))
    # Without offsets, a factor goes through the sublayers and the next norm takes it out again: the
    # gain of a norm would have no gradient. At zero, ReZero and the count of ProRes shut out the
    # branch's gradient, and SeeDNorm's beta that of alpha.
    opened = ("bias", "branch_scale", "step", "beta")
    for weight in (w for w in layer.weights if w.name in opened):
        weight.assign(0.1 + 0.1 * reference.random(*weight.shape))
    weights = [w.value for w in layer.trainable_variables]
    before = [w.numpy() for w in weights]

    @tf.function(jit_compile=True)
    def step():
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(layer(*inputs, training=True) * tf.cos(x))
        for weight, gradient in zip(weights, tape.gradient(value, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return value

    assert np.isfinite(step())
    for old, weight, variable in zip(before, weights, layer.trainable_variables, strict=True):
        assert np.isfinite(weight.numpy()).all(), variable.path
        # What is added to every key shifts all logits of a row alike: softmax does not see it.
        if not variable.path.endswith(("key_projection/bias", "key_norm/beta")):
            assert (weight.numpy() != old).any(), variable.path


@pytest.mark.slow
@pytest.mark.parametrize("scheme", PLANS)
def test_gradients_under_xla_are_those_without(scheme):
    """Of the Add & Norm with each norm around a projection, all in one program."""
    position = StackPosition(4, 4, "encoder", 2, "feed_forward")
    x = tf.constant(reference.random(3, 5, 7), "float32")
    pairs = []
    for norm in norms.names():
        add_norm = AddNorm(FIELDS.get(scheme, scheme), norm, dropout=0.1, position=position)
        projection = Projection(7)
        projection(add_norm.branch_input(x))
        add_norm(x, x)
        for weight in [*add_norm.trainable_weights, *projection.trainable_weights]:
            weight.assign(weight + 0.1 * reference.random(*weight.shape))
        pairs.append((add_norm, projection))
    weights = [w.value for pair in pairs for layer in pair for w in layer.trainable_weights]

    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = [
                add_norm(x, projection(add_norm.branch_input(x, training=False)), training=False)
                for add_norm, projection in pairs
            ]
            value = sum(tf.reduce_sum(output * tf.cos(x)) for output in outputs)
        return tape.gradient(value, [x, *weights])

    plain, compiled = (tf.function(gradients, jit_compile=xla)() for xla in (False, True))
    for one, other in zip(plain, compiled, strict=True):
        assert np.abs(one).max() > 0
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
