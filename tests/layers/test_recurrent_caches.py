"""SSRU and average attention in searches and compiled code: beams, engines, unknown lengths."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from covering import covering
from keras import ops
from layers_reference import array, random, randomize
from recurrent_reference import FORMULAS

from keras_addnorm.decoding import Beam
from keras_addnorm.decoding.engine import TFGraphEngine, XLAEngine
from keras_addnorm.decoding.engine.beam_cache import BeamCache, RowStates
from keras_addnorm.layers import TransformerDecoder
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.serving.optimize_graph import function_definitions

B, T, S, D, H, F = 2, 5, 3, 10, 2, 7
KINDS = tuple(FORMULAS)
MEMORY = random(B, S, D, seed=4).astype("float32")
# Engine, rows of a beam, rows of a sentence.
BEAMS = (
    (XLAEngine(), 3, 3),
    (TFGraphEngine(), 3, 6),
    (TFGraphEngine(), 3, 3),
    (XLAEngine(), 1, 3),
    (TFGraphEngine(), 1, 1),
)


def make(kind, **options):
    decoder = TransformerDecoder(
        2, num_heads=H, intermediate_dim=F, scheme="pre_ln", self_attention=kind, **options
    )
    decoder.build((B, T, D), (B, S, D))
    return randomize(decoder)


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("engine", "n", "rows_per_sentence"), BEAMS, ids=str)
@pytest.mark.parametrize("pruned", [(), ("0/self_attention",)], ids=["whole", "pruned"])
def test_states_follow_their_hypotheses(kind, engine, n, rows_per_sentence, pruned):
    rng = np.random.default_rng(5)
    decoder = make(kind, pruned_sublayers=pruned)
    count = B * rows_per_sentence
    cache = decoder.initial_cache(count, T, MEMORY)
    view = engine.view(decoder, rows_per_sentence, n)
    shared = view.initial_cache(B, T, ops.convert_to_tensor(MEMORY))
    assert isinstance(shared, BeamCache)
    assert isinstance(shared.own[1], RowStates)
    assert shared.ancestors == ()  # There are no keys that a hypothesis could read.
    for t in range(T):
        x = rng.normal(size=(count, 1, D)).astype("float32")
        expected, cache = decoder(x, cache=cache, cache_update_index=t)
        y, shared = view(x, cache=shared, cache_update_index=t)
        np.testing.assert_allclose(array(y), array(expected), rtol=1e-5, atol=1e-5)
        first = n * np.arange(count // n)[:, None]
        rows = (rng.integers(0, n, (count // n, n)) + first).reshape(-1)
        shared = shared.reorder_rows(ops.convert_to_tensor(rows, "int32"))
        cache = [
            {
                **layer,
                "self_attention": keras.tree.map_structure(
                    lambda x, rows=rows: ops.take(x, rows, axis=0), layer["self_attention"]
                ),
            }
            for layer in cache
        ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("jit_compile", [True, False])
def test_unknown_lengths_compile_with_their_gradients(kind, jit_compile):
    """One function for all lengths; without XLA it has no operation of XLA."""
    decoder = make(kind)
    layer = decoder.layers[0].self_attention
    variables = layer.trainable_variables

    @tf.function(
        jit_compile=jit_compile,
        autograph=False,
        input_signature=[tf.TensorSpec((None, None, D)), tf.TensorSpec((None, None), tf.bool)],
    )
    def compiled(x, mask):
        with tf.GradientTape() as tape:
            y = layer(x, padding_mask=mask)
            loss = tf.reduce_sum(y * y)
        return y, tape.gradient(loss, [v.value for v in variables])

    for length in (1, 13, 17):
        x, mask = random(3, length, D), np.ones((3, length), bool)
        mask[1, length // 2 :] = False
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.constant(x, tf.float32), padding_mask=mask) ** 2)
        expected = tape.gradient(loss, [v.value for v in variables])
        y, found = compiled(tf.constant(x, tf.float32), tf.constant(mask))
        np.testing.assert_allclose(y, FORMULAS[kind](layer, x, mask), rtol=1e-4, atol=1e-5)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    if not jit_compile:
        graph = compiled.get_concrete_function().graph.as_graph_def()
        nodes = [graph.node, *(each.node_def for each in function_definitions(graph))]
        assert not [node.op for each in nodes for node in each if "Xla" in node.op]


def translator(kind, **options):
    config = Seq2SeqConfig.preset("micro", self_attention=kind, max_length=40, **options)
    return randomize(Seq2SeqTransformer(config))


SOURCE = np.array([[5, 6, 7, 2], [8, 9, 2, 0], [11, 12, 2, 0]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "jit_compile", "strategy"),
    covering(KINDS, [True, False], ["greedy", Beam(4, num_return=3)]),
    ids=["-".join(map(str, case[:2])) for case in covering(KINDS, [True, False], [1, 4])],
)
def test_a_search_scores_its_outputs_as_the_whole_pass_does(kind, jit_compile, strategy):
    """Over more positions than the first cache of an engine has."""
    model = translator(kind)
    ids, scores = model.generate(SOURCE, strategy, target_prefix=[4, 3], jit_compile=jit_compile)
    found = model.score(SOURCE, np.reshape(ids, (3, -1, 40))).log_probabilities
    assert (np.asarray(ids) != 0).sum(-1).max() > 32
    np.testing.assert_allclose(found.reshape(scores.shape), scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_the_state_does_not_grow_with_the_length(kind):
    model = translator(kind)
    memory, _ = model.encode(SOURCE)
    sizes = [
        [tuple(x.shape) for x in keras.tree.flatten(layer["self_attention"])]
        for length in (3, 40)
        for layer in model.initial_cache(memory, 6, length)
    ]
    width = model.config.hidden_dim
    expected = {"ssru": [(6, width)], "average_attention": [(6, 1), (6, width)]}[kind]
    assert sizes == len(sizes) * [expected]


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_adds_no_weight_and_changes_none(kind):
    model = translator(kind)
    before = [array(weight) for weight in model.weights]
    first, _ = model.generate(SOURCE[:1], max_length=5)
    again, _ = model.generate(SOURCE[:1], max_length=5)
    np.testing.assert_array_equal(first, again)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(array(weight), value)
