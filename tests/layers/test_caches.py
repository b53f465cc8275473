"""Cached decoding equals the full pass: every scheme, kind of positions and choice of attention.

All pairs of a plan, a kind of positions and a choice of attention are there, and every scheme once;
all triples would take minutes.
"""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from covering import covering
from keras import ops
from layers_reference import array, padding, random, randomize

from keras_addnorm import schemes
from keras_addnorm.decoding.engine import TFGraphEngine, XLAEngine
from keras_addnorm.decoding.engine.beam_cache import BeamCache, is_ancestor
from keras_addnorm.decoding.engine.tf_ops import matmul_by_row, transpose
from keras_addnorm.layers import MultiHeadSelfAttention, PositionalEmbedding, TransformerDecoder
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.serving.optimize_graph import function_definitions

B, T, S, D, H = 2, 4, 3, 16, 4
IDS = np.array([[1, 4, 5, 6], [1, 7, 3, 9]])
MEMORY, MEMORY_MASK = random(B, S, D, seed=4).astype("float32"), padding([2, S], S)

# Not peri_ln, which is sandwich_ln, and of those of several streams, which have tests of their own,
# only one whose state grows.
SCHEMES = tuple(
    name
    for name in schemes.names()
    if name == "attention_residuals"
    or (name != "peri_ln" and not isinstance(schemes.get(name), schemes.StreamScheme))
)
POSITIONS = (
    "none",
    "sinusoidal",
    "learned",
    "rotary",
    {"name": "rotary", "scaling": {"name": "ntk", "factor": 3.0}},
    "alibi",
    {"name": "t5", "num_buckets": 4, "max_distance": 3},
    {"name": "shaw", "max_distance": 2},
)
ATTENTION = (
    {},
    {"num_key_value_heads": 2},
    {"num_key_value_heads": 1},
    {"query_key_norm": "rms_norm"},
    {"value_norm": "layer_norm"},
    {"scale": "learned"},
    {"window": 2},
    {"soft_cap": 1.0},
    {"sink": "learned"},
    {"value_residual": True},
)
# A scheme keeps nothing from one step to the next: a few plans stand for all of them.
PLANS = ("post_ln", "sandwich_ln", "sub_ln", "admin")
PAIRWISE = covering(PLANS, POSITIONS, ATTENTION)
EACH_ONCE = [
    (scheme, POSITIONS[i % len(POSITIONS)], ATTENTION[i % len(ATTENTION)])
    for i, scheme in enumerate(SCHEMES)
]
# Engine, rows of a beam, rows of a sentence.
BEAMS = (
    (XLAEngine(), 3, 3),
    (TFGraphEngine(), 3, 3),
    (XLAEngine(), 1, 3),
    (TFGraphEngine(), 3, 6),
    (TFGraphEngine(), 1, 1),
    (TFGraphEngine(), 1, 3),
)
# Each choice with two beams, and each beam with two choices at least.
SHARED = [
    (kind, attention, *BEAMS[(i + k) % len(BEAMS)])
    for i, (kind, attention) in enumerate(zip(itertools.cycle(POSITIONS), ATTENTION, strict=False))
    for k in (0, 3)
]


def make(scheme, kind, attention):
    embedding = PositionalEmbedding(11, D, positions=kind, max_length=T)
    decoder = TransformerDecoder(
        2 if "value_residual" in attention else 1,
        num_heads=H,
        intermediate_dim=7,
        scheme=scheme,
        positions=kind,
        attention=attention,
        num_other_layers=1,
    )
    decoder.build((B, T, D), (B, S, D))
    return embedding, randomize(decoder)


def full_pass(embedding, decoder):
    return decoder(embedding(IDS), MEMORY, memory_padding_mask=MEMORY_MASK)


def step(embedding, decoder, tokens, cache, t):
    return decoder(
        embedding(tokens[:, None], start_index=t),
        memory_padding_mask=MEMORY_MASK,
        cache=cache,
        cache_update_index=t,
    )


@pytest.mark.fast_cases(10)
@pytest.mark.parametrize(("scheme", "kind", "attention"), PAIRWISE, ids=str)
def test_cached_equals_uncached(scheme, kind, attention):
    embedding, decoder = make(scheme, kind, attention)
    expected = full_pass(embedding, decoder)
    cache = decoder.initial_cache(B, T + 1, MEMORY)
    for t in range(T):
        y, cache = step(embedding, decoder, IDS[:, t], cache, t)
        np.testing.assert_allclose(y[:, 0], expected[:, t], rtol=1e-5, atol=1e-5)


def test_every_choice_is_compiled_once():
    for place, choices in enumerate((SCHEMES, POSITIONS, ATTENTION)):
        assert {str(triple[place]) for triple in EACH_ONCE} == set(map(str, choices))


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(("scheme", "kind", "attention"), EACH_ONCE, ids=str)
def test_cached_equals_uncached_in_a_compiled_loop(scheme, kind, attention):
    embedding, decoder = make(scheme, kind, attention)
    expected = full_pass(embedding, decoder)
    places = tf.range(T)

    @tf.function(jit_compile=True, autograph=False)
    def decode(ids):
        def advance(t, ys, cache):
            tokens = ops.take(ids, t, axis=1)
            y, cache = step(embedding, decoder, tokens, cache, t)
            return t + 1, ops.where((places == t)[:, None], y, ys), cache

        cache = decoder.initial_cache(B, T, MEMORY)
        state = (tf.constant(0), tf.zeros((B, T, D)), cache)
        return ops.while_loop(lambda t, ys, cache: t < T, advance, state)[1]

    np.testing.assert_allclose(decode(tf.constant(IDS)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.fast_cases(6)
@pytest.mark.parametrize(("kind", "attention", "engine", "n", "rows_per_sentence"), SHARED, ids=str)
def test_hypotheses_that_share_a_cache_read_their_ancestors(
    kind, attention, engine, n, rows_per_sentence
):
    """As do rows with caches of their own, which are copied when hypotheses are reordered."""
    rng = np.random.default_rng(5)
    embedding, decoder = make("pre_ln", kind, attention)
    count = B * rows_per_sentence
    cache = decoder.initial_cache(count, T, MEMORY)
    view = engine.view(decoder, rows_per_sentence, n)
    shared = view.initial_cache(B, T, ops.convert_to_tensor(MEMORY))
    assert isinstance(shared, BeamCache)
    for t in range(T):
        tokens = rng.integers(3, 11, count).astype("int32")
        expected, cache = step(embedding, decoder, tokens, cache, t)
        y, shared = step(embedding, view, tokens, shared, t)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
        first = n * np.arange(count // n)[:, None]
        rows = (rng.integers(0, n, (count // n, n)) + first).reshape(-1)
        shared = shared.reorder_rows(ops.convert_to_tensor(rows, "int32"))
        cache = [
            {**layer, "self_attention": ops.take(layer["self_attention"], rows, axis=0)}
            for layer in cache
        ]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rows", [1, 2])
def test_products_in_every_precision(dtype, rows):
    """There are kernels for some only; several hypotheses, or heads, may read the same keys."""
    x, y = (random(*shape, seed=6) for shape in ((5, rows, 7), (5, 7, 3)))
    found = matmul_by_row(ops.cast(x, dtype), ops.cast(y, dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(ops.cast(found, "float32"), x @ y, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_transpositions_in_every_precision(dtype):
    x = ops.cast(random(2, 3, 4, 5, seed=7), dtype)
    found = transpose(x, (0, 2, 3, 1))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, ops.transpose(x, (0, 2, 3, 1)))


def test_ancestors_as_a_mask():
    table = ops.convert_to_tensor([[[0, 1], [0, 0]]], dtype="int32")
    # Slots: position 0 of hypotheses 0 and 1, then position 1 of them.
    np.testing.assert_array_equal(
        is_ancestor(table), [[[True, False, False, True], [True, False, True, False]]]
    )


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("kind", POSITIONS, ids=str)
def test_a_step_without_xla_has_no_operation_of_xla(kind):
    """TensorFlow Serving refuses them unless it was started with a flag of its own."""
    embedding, decoder = make("pre_ln", kind, {"num_key_value_heads": 2, "sink": "learned"})
    cache = decoder.initial_cache(B, T, MEMORY)

    @tf.function(autograph=False)
    def one_step(tokens, t):
        return step(embedding, decoder, tokens, cache, t)

    graph = one_step.get_concrete_function(
        tf.TensorSpec((B,), tf.int32), tf.TensorSpec((), tf.int32)
    ).graph.as_graph_def()
    functions = [graph.node, *(function.node_def for function in function_definitions(graph))]
    operations = {node.op for nodes in functions for node in nodes}
    assert "BatchMatMulV2" in operations and not [op for op in operations if "Xla" in op]


@pytest.mark.parametrize(("groups", "policy", "size"), [(4, "float32", 4), (1, "mixed_float16", 2)])
def test_the_memory_of_the_caches(groups, policy, size):
    """`2 B S G K` numbers a layer for the decoder's own positions, and for the memory's."""
    layers, beams, max_length = 3, 5, 7
    config = Seq2SeqConfig(
        source_vocabulary_size=11,
        target_vocabulary_size=11,
        num_encoder_layers=1,
        num_decoder_layers=layers,
        hidden_dim=D,
        intermediate_dim=7,
        num_heads=H,
        attention={"num_key_value_heads": groups},
    )
    model = Seq2SeqTransformer(config, dtype=policy)
    memory, mask = model.encode(np.array([[4, 5, 2], [3, 2, 0]]))
    cache = model.initial_cache(memory, B * beams, max_length)
    bytes_of = {
        name: sum(array_bytes(layer[name]) for layer in cache)
        for name in ("self_attention", "cross_attention")
    }
    width = D // H
    assert bytes_of == {
        "self_attention": 2 * (B * beams) * max_length * groups * width * size * layers,
        "cross_attention": 2 * B * S * groups * width * size * layers,
    }
    _, after = model.decode_step(np.ones(B * beams, "int32"), cache, 0, mask)
    keras.tree.assert_same_structure(after, cache)
    assert [a.shape for a in keras.tree.flatten(after)] == [
        a.shape for a in keras.tree.flatten(cache)
    ]
    for layer, updated in zip(cache, after, strict=True):
        assert updated["cross_attention"] is layer["cross_attention"]
        assert np.abs(array(tf.cast(updated["self_attention"], "float32"))).max() > 0


def array_bytes(tensor):
    return keras.ops.convert_to_numpy(tensor).nbytes


@pytest.mark.parametrize("index", [-1, 2, 99])
def test_a_place_outside_of_a_cache_is_refused(index):
    """What was written there was lost, and attention went on without it."""
    layer, x = MultiHeadSelfAttention(num_heads=2), random(1, 2, 4)
    layer(x)
    cache = layer.empty_cache(1, 3)
    layer(x, cache=cache, cache_update_index=1)
    with pytest.raises(ValueError, match=r"There are 3 positions\. Expected 0"):
        layer(x, cache=cache, cache_update_index=index)
    with pytest.raises(ValueError, match="no cache of keys and values"):
        layer(x, cache=cache[:, 0], cache_update_index=0)
