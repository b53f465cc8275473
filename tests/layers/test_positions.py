"""The kinds of relative positions as small tables that can be read, and their table of names."""

import attention_reference as reference
import numpy as np
import pytest
from layers_reference import array, random

from keras_addnorm.layers import TransformerDecoder, TransformerEncoder, TransformerEncoderLayer
from keras_addnorm.layers import positions as kinds

DISTANCES = np.arange(5) - np.arange(4)[:, None]  # 4 queries, 5 keys


def built(name, heads=3, width=4, dtype="float64", **fields):
    layer = kinds.relative({"name": name, **fields}, dtype=dtype)
    layer.build((heads, width))
    return layer


# T5

# Distance: bucket, as the published code puts 32 buckets and a distance of 128.
T5_BOTH_WAYS = {0: 0, -1: 1, -7: 7, -8: 8, -11: 8, -12: 9, -15: 9, -16: 10, -22: 10, -23: 11}
T5_BOTH_WAYS |= {-31: 11, -32: 12, -45: 12, -46: 13, -63: 13, -64: 14, -90: 14, -91: 15}
T5_BOTH_WAYS |= {-127: 15, -128: 15, -5000: 15, 1: 17, 7: 23, 8: 24, 16: 26, 127: 31, 5000: 31}
T5_CAUSAL = {0: 0, -1: 1, -15: 15, -16: 16, -18: 16, -19: 17, -20: 17, -21: 18, -24: 19, -31: 21}
T5_CAUSAL |= {-32: 21, -64: 26, -112: 30, -113: 31, -128: 31, -9999: 31, 1: 0, 300: 0}


@pytest.mark.parametrize(("is_causal", "table"), [(False, T5_BOTH_WAYS), (True, T5_CAUSAL)])
def test_t5_buckets_by_hand(is_causal, table):
    found = kinds.t5_buckets(np.array(list(table)), is_causal=is_causal)
    assert dict(zip(table, found.tolist(), strict=True)) == table


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 5), (16, 100), (4, 3)])
def test_t5_buckets_equal_the_published_code(buckets, farthest, is_causal):
    distances = np.arange(-2 * farthest, 2 * farthest)
    expected = [reference.t5_bucket(d, buckets, farthest, is_causal) for d in distances.tolist()]
    found = kinds.t5_buckets(distances, buckets, farthest, is_causal)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("is_causal", [False, True])
def test_t5_bias_looks_its_buckets_up(is_causal):
    layer = built("t5", num_buckets=8, max_distance=5)
    bias = layer.bias(DISTANCES, is_causal)
    for t, s in np.ndindex(DISTANCES.shape):
        bucket = reference.t5_bucket(int(DISTANCES[t, s]), 8, 5, is_causal)
        np.testing.assert_array_equal(bias[:, t, s], array(layer.embeddings)[bucket])


def tables(stack):
    return [layer.self_attention.positions for layer in stack.layers]


def test_the_layers_of_a_stack_share_t5s_table_and_no_other():
    x, sizes = random(2, 5, 8), {"num_layers": 3, "num_heads": 2, "intermediate_dim": 7}
    t5, shaw = (TransformerEncoder(positions=name, **sizes) for name in ("t5", "shaw"))
    plain, decoder = TransformerEncoder(**sizes), TransformerDecoder(positions="t5", **sizes)
    for stack in (t5, shaw, plain, decoder):
        stack(x)
    assert len({id(table) for table in tables(t5)}) == 1
    assert len({id(table) for table in tables(shaw)}) == 3
    assert tables(plain) == [None, None, None]
    assert t5.count_params() == plain.count_params() + 32 * 2
    assert shaw.count_params() == plain.count_params() + 3 * 2 * 33 * 4
    assert [w.shape for w in decoder.weights if "positions" in w.path] == [(32, 2)]
    config = t5.layers[1].get_config()
    fields = {"num_buckets": 32, "max_distance": 128, "is_shared": True}
    assert config["positions"] == {"name": "t5", **fields}
    alone = TransformerEncoderLayer.from_config(config)
    assert alone.get_config() == config


def test_t5s_tables_of_a_layer_each():
    """As umT5 has them; each layer looks its own up."""
    sizes = {"num_layers": 3, "num_heads": 2, "intermediate_dim": 8}
    positions = {"name": "t5", "num_buckets": 8, "max_distance": 5, "is_shared": False}
    x = random(1, 5, 8)
    for stack in (TransformerEncoder, TransformerDecoder):
        layers = stack(positions=positions, **sizes)
        before = array(layers(x))
        assert len({id(table) for table in tables(layers)}) == 3
        for table in tables(layers):
            table.embeddings.assign(np.arange(16.0).reshape(8, 2) / 8)
            after = array(layers(x))
            assert abs(after - before).max() > 1e-6
            before = after
    with pytest.raises(ValueError, match=r"is_shared is a switch.*Received: 'no'"):
        TransformerEncoder(positions={**positions, "is_shared": "no"}, **sizes)(x)


# ALiBi

SLOPES = {
    8: [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8],
    12: [
        1 / 2,
        1 / 4,
        1 / 8,
        1 / 16,
        1 / 32,
        1 / 64,
        1 / 128,
        1 / 256,
        0.5**0.5,
        0.5**1.5,
        0.5**2.5,
        0.5**3.5,
    ],
    3: [2**-4, 2**-8, 2**-2],
    1: [2**-8],
}


@pytest.mark.parametrize("heads", SLOPES)
def test_alibi_slopes(heads):
    np.testing.assert_allclose(kinds.alibi_slopes(heads), SLOPES[heads], rtol=1e-14)


def test_alibi_falls_off_on_both_sides():
    found = array(built("alibi", heads=2).bias(np.array([[-2, -1, 0, 1]]), False))
    np.testing.assert_array_equal(
        found, [[[-2 / 16, -1 / 16, 0, -1 / 16]], [[-2 / 256, -1 / 256, 0, -1 / 256]]]
    )


# Shaw


def test_shaw_index_is_clipped():
    expected = [[2, 3, 4, 4, 4], [1, 2, 3, 4, 4], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3]]
    np.testing.assert_array_equal(kinds.shaw_index(DISTANCES, 2), expected)


def test_shaws_terms_are_the_papers_sums():
    layer = built("shaw", max_distance=2)
    queries, weights = random(2, 4, 3, 4), random(2, 3, 4, 5, seed=4)
    index = array(kinds.shaw_index(DISTANCES, 2)).astype(int)
    keys, values = array(layer.key_embeddings)[index], array(layer.value_embeddings)[index]
    for b, h, t in np.ndindex(2, 3, 4):
        logits = [queries[b, t, h] @ keys[t, s] for s in range(5)]
        np.testing.assert_allclose(layer.query_logits(queries, DISTANCES)[b, h, t], logits)
        context = sum(weights[b, h, t, s] * values[t, s] for s in range(5))
        np.testing.assert_allclose(layer.context(weights, DISTANCES)[b, t, h], context)


# Rotary


def test_a_quarter_turn_by_hand():
    # One pair turns by 1 radian a position, the other by 1/10: channels 0, 2 and 1, 3.
    layer = built("rotary", base=100.0)
    x = np.zeros((1, 2, 1, 4))
    x[..., 0], x[..., 1] = 1.0, 2.0
    found = array(layer.rotate(x, np.array([0, 3])))[0, :, 0]
    np.testing.assert_allclose(
        found,
        [
            [1.0, 2.0, 0.0, 0.0],
            [-0.9899924966, 1.9106729783, 0.1411200081, 0.5910404133],
        ],
        atol=1e-9,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"base": 30.0},
        {"scaling": {"name": "linear", "factor": 4.0}},
        {"scaling": {"name": "ntk", "factor": 4.0}},
    ],
    ids=str,
)
def test_rotation_is_a_product_of_complex_numbers(fields):
    x, positions = random(2, 6, 3, 10), np.array([0, 1, 2, 77, 1000, 5000])
    layer = built("rotary", width=10, **fields)
    found = array(layer.rotate(x, positions))
    for b, t, h in np.ndindex(2, 6, 3):
        expected = reference.rotated(x[b, t, h], int(positions[t]), **fields)
        np.testing.assert_allclose(found[b, t, h], expected, atol=1e-9)
    single = array(
        built("rotary", width=10, dtype="float32", **fields).rotate(x.astype("f4"), positions)
    )
    np.testing.assert_allclose(single, found, atol=1e-5)


def test_ntk_scaling_slows_the_slowest_pair_by_the_factor_and_leaves_the_fastest():
    plain, scaled = (
        built("rotary", width=8, scaling=s) for s in (None, {"name": "ntk", "factor": 4.0})
    )
    before, after = (array(r._angles(np.array([1]), "float64"))[0] for r in (plain, scaled))
    np.testing.assert_allclose(before / after, [1.0, 4 ** (1 / 3), 4 ** (2 / 3), 4.0], rtol=1e-6)


def test_an_odd_head_cannot_turn():
    with pytest.raises(ValueError, match=r"an even width of a head\. Received: head_dim=5"):
        built("rotary", width=5)


# The table


def test_names():
    assert kinds.names() == ("none", "sinusoidal", "learned", "rotary", "alibi", "t5", "shaw")


@pytest.mark.parametrize("name", kinds.names())
def test_embedding_and_attention_take_what_is_their_own(name):
    is_absolute, is_relative = kinds.absolute(name) is not None, kinds.relative(name) is not None
    assert is_absolute == (name in ("sinusoidal", "learned"))
    assert is_relative == (name in ("rotary", "alibi", "t5", "shaw"))


@pytest.mark.parametrize(
    "choice",
    ["alibi", {"name": "rotary", "base": 7.0}, {"name": "shaw", "max_distance": 3}],
    ids=str,
)
def test_choices_are_written_down(choice):
    layer = kinds.relative(choice)
    assert kinds.relative(layer) is layer
    assert kinds.serialize(choice) == choice
    again = kinds.relative(kinds.serialize(layer))
    assert type(again) is type(layer) and again.fields() == layer.fields()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("rope", "Expected one of none, sinusoidal, .*, shaw.*Received: 'rope'"),
        ({"base": 3.0}, "with a 'name' among them.*Received: {'base'"),
        ({"name": "rotary", "theta": 3.0}, r"'rotary' has no such field.*\['base', 'scaling'\]"),
        (
            {"name": "alibi", "slope": 3.0},
            r"'alibi' has no such field. Expected fields among \[\]",
        ),
        ({"name": "learned", "max_length": 3}, "'learned' has no such field"),
        ({"name": "rotary", "base": 0.0}, "base of rotary positions: expected > 1"),
        ({"name": "rotary", "scaling": {"name": "yarn", "factor": 2}}, "among linear, ntk.*yarn"),
        ({"name": "rotary", "scaling": {"name": "ntk"}}, "a 'factor' > 0"),
        ({"name": "t5", "num_buckets": 6}, "multiple of 4.*num_buckets=6, max_distance=128"),
        ({"name": "t5", "max_distance": 16}, "max_distance > num_buckets / 2"),
        ({"name": "t5", "max_distance": 10**9}, "at most 1048576.*max_distance=1000000000"),
        ({"name": "shaw", "max_distance": 0}, "Expected 1 <= max_distance <= .*Received: 0"),
        ({"name": "shaw", "max_distance": 10**9}, "<= 1048576. Received: 1000000000"),
    ],
    ids=str,
)
def test_bad_choices_are_named(choice, message):
    with pytest.raises(ValueError, match=message):
        kinds.relative(choice)


@pytest.mark.parametrize("kind", ["t5", "shaw"])
@pytest.mark.parametrize("factor", [1, 3])
def test_far_distances_share_a_value(kind, factor):
    """Nothing has an end: what lies beyond the table is what lies at its edge."""
    layer = built(kind, max_distance=20)
    near, far = np.array([[-20, 20]]), factor * np.array([[-21, 21]])
    if kind == "t5":
        np.testing.assert_array_equal(layer.bias(near, False), layer.bias(far, False))
    else:
        queries = random(2, 1, 3, 4)
        np.testing.assert_array_equal(
            layer.query_logits(queries, near), layer.query_logits(queries, far)
        )
