"""Whole models whose scheme has several streams or a memory: layers, caches, searches, files."""

import functools

import keras
import numpy as np
import pytest
from keras import ops
from models_reference import SOURCE, TARGET, array, batch, tiny_model

from keras_addnorm import schemes
from keras_addnorm.data import Tokenizer
from keras_addnorm.interop import export_ctranslate2
from keras_addnorm.layers import TransformerDecoder, TransformerEncoder, TransformerEncoderLayer
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.schemes import StackPosition

SCHEMES = [name for name in schemes.names() if isinstance(schemes.get(name), schemes.StreamScheme)]
X = np.random.default_rng(3).normal(size=(2, 4, 8)).astype("float32")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)


@functools.cache
def model_of(scheme):
    return tiny_model(scheme=scheme, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_cached_decoding_is_the_full_pass_and_padding_changes_nothing(scheme):
    model = model_of(scheme)
    expected = array(model(batch()))
    memory, mask = model.encode(SOURCE)
    cache = model.initial_cache(memory, len(SOURCE), TARGET.shape[1])
    for index in range(TARGET.shape[1]):
        logits, cache = model.decode_step(TARGET[:, index], cache, index, mask)[:2]
        real = TARGET[:, index] != 0
        np.testing.assert_allclose(array(logits)[real], expected[real, index], rtol=1e-3, atol=1e-3)
    shorter = array(model({"source": SOURCE[1:2, :3], "target": TARGET[1:2, :2]}))
    np.testing.assert_allclose(shorter[0], expected[1, :2], rtol=1e-3, atol=1e-3)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_search_scores_as_the_full_pass(scheme):
    """Its hypotheses change places; a step alone is in the test above."""
    model = model_of(scheme)
    ids, scores = model.generate(
        SOURCE, num_beams=3, max_length=4, length_penalty=0.0, jit_compile=False
    )
    target = np.concatenate([np.ones((3, 1), int), ids[:, :-1]], axis=1)
    logits = array(ops.log_softmax(model({"source": SOURCE, "target": target})))
    found = np.take_along_axis(logits, ids[..., None], -1)[..., 0]
    np.testing.assert_allclose((found * (ids != 0)).sum(-1), scores, rtol=1e-3, atol=1e-3)


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_files_hold_all_of_it(scheme, tmp_path):
    model = model_of(scheme)
    model.save_weights(tmp_path / "m.weights.h5")
    config = Seq2SeqConfig.from_json(model.config.to_json())
    other = Seq2SeqTransformer(config)
    other.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(array(other(batch())), array(model(batch())))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_layer_alone_opens_and_collapses(scheme):
    """`TransformerEncoder` of one layer, but for the norms at its ends."""
    stack = TransformerEncoder(1, num_heads=2, intermediate_dim=5, scheme=scheme)
    expected = array(stack(X))
    x = X if stack.embedding_norm is None else stack.embedding_norm(X)
    alone = stack.layers[0](x)
    y = alone if stack.final_norm is None else stack.final_norm(alone)
    if scheme == "resi_dual":
        state = stack.layers[0](schemes.get(scheme).open(X))
        y = alone + stack.final_norm(state.streams[1])
    if scheme == "siamese_norm":
        first, second = stack.layers[0](schemes.get(scheme).open(X)).streams
        ends = stack.end_norms
        y = stack.final_norm(ends["stream_norm"](first) + ends["sum_norm"](second))
    np.testing.assert_allclose(array(y), expected, atol=1e-4)
    deep = TransformerEncoderLayer(
        num_heads=2, intermediate_dim=5, scheme=scheme, position=StackPosition(5, 0, "encoder", 3)
    )
    assert np.isfinite(array(deep(X))).all()


def test_residual_scalars_start_as_pre_ln_of_normed_embeddings_to_the_bit():
    ours, pre_ln = (
        TransformerEncoder(2, num_heads=2, intermediate_dim=5, scheme=s)
        for s in ("residual_scalars", "pre_ln")
    )
    for stack in (ours, pre_ln):
        stack.build(X.shape)
    scalars = [w for w in ours.weights if w.name in ("stream_weight", "start_weight")]
    assert [float(array(w)) for w in scalars] == [1.0, 0.0] * 2
    own = {id(w) for w in (*scalars, *ours.embedding_norm.weights)}
    others = [w for w in ours.weights if id(w) not in own]
    for weight, other in zip(others, pre_ln.weights, strict=True):
        other.assign(weight)
    np.testing.assert_array_equal(array(ours(X)), array(pre_ln(ours.embedding_norm(X))))


@pytest.mark.parametrize("has_memory", [False, True])
def test_decoder_layers_count_the_sublayers_that_they_have(has_memory):
    """Attention residuals in blocks of 2 have a query in all sublayers but a stack's first."""
    decoder = TransformerDecoder(
        2, num_heads=2, intermediate_dim=5, scheme={"name": "attention_residuals", "block_size": 2}
    )
    decoder.build(X.shape, *([X.shape] if has_memory else []))
    names = ("self_attention", *(["cross_attention"] if has_memory else []), "feed_forward")
    places = [layer.position_of(name) for layer in decoder.layers for name in names]
    assert [place.sublayer_index for place in places] == list(range(2 * len(names)))
    assert {place.num_sublayers for place in places} == {2 * len(names)}
    queries = [w for w in decoder.weights if w.name == "query"]
    assert len(queries) == 2 * len(names)  # the stack's end has one, too
    assert np.isfinite(array(decoder(X, *([X] if has_memory else [])))).all()


@pytest.mark.parametrize("scheme", ["attention_residuals", "residual_scalars"])
def test_norms_that_keep_factors_are_another_model(scheme):
    for norm in ("none", "derf", "seed_norm"):
        with pytest.warns(UserWarning, match=rf"such as 'layer_norm'.*Received: norm='{norm}'"):
            TransformerEncoder(1, num_heads=2, intermediate_dim=5, scheme=scheme, norm=norm)
    TransformerEncoder(
        1, num_heads=2, intermediate_dim=5, scheme=scheme, norm="scale_norm"
    )  # without a warning


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradient_checkpointing_changes_no_number(scheme):
    found = []
    for again in (False, True):
        keras.utils.set_random_seed(4)
        stack = TransformerDecoder(
            2,
            num_heads=2,
            intermediate_dim=5,
            scheme=scheme,
            dropout=0.2,
            gradient_checkpointing=again,
        )
        stack.build(X.shape, X.shape)
        found.append(_gradients(stack))
    assert len(found[0]) == len(stack.trainable_variables)
    for kept, made in zip(*found, strict=True):
        np.testing.assert_allclose(made, kept, rtol=1e-4, atol=1e-5)


def _gradients(stack):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = ops.sum(ops.cos(stack(X, X[:, ::-1], training=True)))
    values = [variable.value for variable in stack.trainable_variables]
    return [array(g) for g in tape.gradient(value, values, unconnected_gradients="zero")]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_ctranslate2_refuses_them_by_name(scheme, tokenizer, tmp_path):
    name = type(schemes.get(scheme)).__name__
    with pytest.raises(ValueError, match=f"cannot say this model's scheme.*Received: '{name}'"):
        export_ctranslate2(model_of(scheme), tokenizer, tmp_path / "ct2")


def test_a_functional_model_hands_a_state_on():
    """Layers of one's own stack, without the stack: a state is a tree of Keras tensors."""
    scheme = schemes.get("mhc_lite")
    inputs = keras.Input((4, 8))
    layers = [
        TransformerEncoderLayer(
            num_heads=2,
            intermediate_dim=5,
            scheme=scheme,
            position=StackPosition(2, 0, "encoder", i),
        )
        for i in range(2)
    ]
    state = scheme.open(inputs)
    for layer in layers:
        layer.build((None, 4, 8))
        state = layer(state)
    model = keras.Model(inputs, list(state.streams))
    expected = scheme.open(X)
    for layer in layers:
        expected = layer(expected)
    for found, stream in zip(model(X), expected.streams, strict=True):
        np.testing.assert_allclose(array(found), array(stream), rtol=1e-5, atol=1e-6)
