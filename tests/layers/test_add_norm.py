import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from covering import covering
from layers_reference import (
    NORMS,
    SCHEMES,
    B,
    D,
    T,
    array,
    branch_input,
    merge,
    position,
    random,
    randomize,
)
from layers_reference import norm as reference_norm
from norm_formulas import layer_norm

from keras_addnorm.layers import AddNorm
from keras_addnorm.schemes import ExtraLayer, LayerScale, ResidualPlan, ResidualScheme


@pytest.mark.parametrize(("scheme", "norm"), covering(SCHEMES, NORMS, strength=1))
def test_equals_the_formula(scheme, norm):
    x, f = random(B, T, D), random(B, T, D, seed=4)
    add_norm = AddNorm(scheme, norm, position=position("decoder"), dtype="float64")
    add_norm.build((B, T, D))
    randomize(add_norm)
    np.testing.assert_allclose(
        add_norm.branch_input(x), branch_input(add_norm, scheme, x), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(
        add_norm(x, f), merge(add_norm, scheme, x, f), rtol=1e-12, atol=1e-12
    )


# Golden files hold the paths and shapes of all schemes.
FACTORS = {
    "admin": ("skip_scale", 1.0, (D,)),
    "gpas": ("gate", 0.0, ()),
    "rezero": ("branch_scale", 0.0, ()),
    "layer_scale": ("branch_scale", 0.1, (D,)),
}


@pytest.mark.parametrize("scheme", FACTORS)
def test_learned_factors_start_as_documented(scheme):
    name, value, shape = FACTORS[scheme]
    add_norm = AddNorm(scheme, position=position(), name="a")
    add_norm.build((B, T, D))
    np.testing.assert_allclose(array(getattr(add_norm, name)), np.full(shape, value), rtol=1e-7)


def test_rms_norm_has_a_gain_and_no_offset():
    add_norm = AddNorm(norm="rms_norm", name="a")
    add_norm.build((B, T, D))
    assert [w.path for w in add_norm.weights] == ["a/post_norm/scale"]
    np.testing.assert_array_equal(array(add_norm.weights[0]), np.ones(D))


def test_alone_it_is_the_box_of_the_paper():
    x, f = random(B, T, D), random(B, T, D, seed=4)
    expected = layer_norm(x + f, 1.0, 0.0, epsilon=1e-6)
    np.testing.assert_allclose(AddNorm()(x, f), expected, rtol=1e-5, atol=1e-5)


def test_one_position_by_hand():
    # x + f = (1, 3): mean 2, variance 1.
    y = AddNorm(epsilon=0.0, dtype="float64")(np.array([[[1.0, 1.0]]]), np.array([[[0.0, 2.0]]]))
    np.testing.assert_allclose(y, [[[-1.0, 1.0]]], rtol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_each_position_is_normalised_by_itself(norm):
    x, f = random(B, T, D), random(B, T, D, seed=4)
    add_norm = AddNorm(norm=norm)
    before = array(add_norm(x, f))
    x[1, 2] *= 7.0
    changed = (array(add_norm(x, f)) != before).any(-1)
    assert changed.sum() == 1
    assert changed[1, 2]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("policy", "offset", "tolerance"),
    [("mixed_float16", 300.0, 2e-3), ("mixed_bfloat16", 30.0, 2e-2)],
)
def test_statistics_are_float32_in_half_precision(policy, offset, tolerance, norm):
    # Squares of 300 overflow float16; a mean of 30 plus small numbers is lost in bfloat16.
    half = policy.removeprefix("mixed_")
    x = np.array(tf.cast(offset + random(B, T, D), half).numpy(), "float64")
    y = AddNorm(norm=norm, dtype=policy)(tf.cast(x, half), tf.zeros(x.shape, half))
    assert y.dtype == half
    mean = x.mean(-1, keepdims=True) if norm == "layer_norm" else 0.0
    expected = (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(array(tf.cast(y, "float32")), expected, atol=tolerance * 2.5)


def test_dropout_falls_on_the_branch_only_while_training():
    x, f = 100.0 * np.ones((B, T, D)), np.ones((B, T, D))
    add_norm = AddNorm("pre_ln", dropout=0.5)
    np.testing.assert_array_equal(add_norm(x, lambda h: f), x + f)
    dropped = array(add_norm(x, lambda h: f, training=True))
    assert set(np.unique(dropped)) == {100.0, 102.0}


# Stochastic depth

MANY = 200


def _dropped(scheme, **arguments):
    """An AddNorm with `drop_path=0.25`, its input, and its output while training."""
    x, f = random(MANY, T, D), random(MANY, T, D, seed=4)
    add_norm = AddNorm(scheme, drop_path=0.25, dtype="float64", **arguments)
    add_norm.build(x.shape)
    randomize(add_norm)
    return add_norm, x, f, array(add_norm(x, lambda h: f, training=True))


@pytest.mark.parametrize("scheme", ["no_norm", "post_ln", "sandwich_ln", "layer_scale", "admin"])
def test_drop_path_leaves_whole_examples_without_the_branch(scheme):
    add_norm, x, f, y = _dropped(scheme)
    if scheme == "sandwich_ln":  # what joins the stream is the norm of the branch
        stream = reference_norm(add_norm.branch_norm, f)
        without, alone = x, x + stream / 0.75
    else:
        without = merge(add_norm, scheme, x, np.zeros_like(f))
        alone = merge(add_norm, scheme, x, f / 0.75)
    went_without = np.isclose(y, without, rtol=1e-10, atol=1e-10).all((1, 2))
    stayed = np.isclose(y, alone, rtol=1e-10, atol=1e-10).all((1, 2))
    assert (went_without ^ stayed).all()
    # 50 of 200 are expected, with a standard deviation of 6.1.
    assert 25 < went_without.sum() < 75


def test_a_dropped_post_ln_branch_leaves_the_norm_of_the_stream():
    add_norm, x, _, y = _dropped("post_ln")
    expected = reference_norm(add_norm.post_norm, x)
    assert np.isclose(y, expected, rtol=1e-10, atol=1e-10).all((1, 2)).any()


def test_drop_path_acts_while_training_only():
    add_norm, x, f, _ = _dropped("no_norm")
    np.testing.assert_array_equal(add_norm(x, f), x + f)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_drop_path_keeps_the_mean_in_half_precision(policy):
    half = policy.removeprefix("mixed_")
    x, f = tf.zeros((2000, 1, 3), half), tf.fill((2000, 1, 3), tf.cast(40000.0, half))
    y = array(
        tf.cast(AddNorm("no_norm", drop_path=0.25, dtype=policy)(x, f, training=True), "float32")
    )
    np.testing.assert_allclose(np.unique(y), [0.0, 40000 / 0.75], rtol=4e-3)
    # The standard error of the mean is 1.3 %.
    assert y.mean() == pytest.approx(40000, rel=0.06)


def test_drop_path_under_xla_draws_anew_on_every_call():
    add_norm = AddNorm("no_norm", drop_path=0.5)
    add_norm.build((None, 2, 3))
    merged = tf.function(lambda x, f: add_norm(x, f, training=True), jit_compile=True)
    first, second = (array(merged(tf.zeros((64, 2, 3)), tf.ones((64, 2, 3)))) for _ in range(2))
    for y in (first, second):
        assert set(np.unique(y)) == {0.0, 2.0}
        np.testing.assert_array_equal(y, np.broadcast_to(y[:, :1, :1], y.shape))
    assert (first != second).any()


def test_without_drop_path_there_is_nothing_of_it():
    x = tf.zeros((2, 3, 4))

    def operations(add_norm):
        add_norm.build(x.shape)
        graph = tf.function(lambda x: add_norm(x, x, training=True)).get_concrete_function(x).graph
        return {operation.type for operation in graph.get_operations()}, add_norm.variables

    with_it, state = operations(AddNorm("no_norm", drop_path=0.5))
    without, no_state = operations(AddNorm("no_norm"))
    assert any("Random" in kind for kind in with_it)
    assert not any("Random" in kind for kind in without)
    assert (len(state), len(no_state)) == (1, 0)


# Layers of a scheme's own


def make_gate(hidden_dim, **arguments):
    gate = keras.layers.Dense(1, **arguments)
    gate.build((None, hidden_dim))
    return gate


@dataclasses.dataclass(frozen=True)
class Gated(ResidualScheme):
    """`y = x + sigmoid(W f) f`."""

    name: str = "gate"
    needs_final_norm = False

    def plan(self, position):
        return ResidualPlan(extra_layers=(ExtraLayer(self.name, make_gate),))

    def branch_input(self, x, parts):
        return x

    def merge(self, residual, branch, parts):
        return residual + keras.ops.sigmoid(parts.gate(branch)) * branch


def test_a_scheme_brings_a_layer_of_its_own():
    x, f = random(B, T, D), random(B, T, D, seed=4)
    add_norm = AddNorm(Gated(), dtype="float64", name="a")
    y = add_norm(x, f)
    logits = f @ array(add_norm.gate.kernel) + array(add_norm.gate.bias)
    np.testing.assert_allclose(y, x + f / (1 + np.exp(-logits)), rtol=1e-12, atol=1e-12)
    assert [w.path for w in add_norm.weights] == ["a/gate/kernel", "a/gate/bias"]
    assert add_norm.gate.dtype_policy.name == "float64"


def test_a_layer_under_a_name_of_add_norm_itself_is_an_error():
    with pytest.raises(ValueError, match=r"a name that AddNorm uses itself.*'dropout'"):
        AddNorm(Gated("dropout")).build((B, T, D))


def test_a_layer_that_is_not_built_is_an_error(monkeypatch):
    def unbuilt(hidden_dim, **arguments):
        return keras.layers.Dense(1, **arguments)

    monkeypatch.setitem(globals(), "make_gate", unbuilt)
    with pytest.raises(ValueError, match=r"'gate' has no weights yet.*Expected a built layer"):
        AddNorm(Gated()).build((B, T, D))


def test_a_part_under_another_name_is_an_error():
    with pytest.raises(AttributeError, match=r"part 'gate'.*Expected one of \['door'\]"):
        AddNorm(Gated("door"))(np.zeros((B, T, D)), np.zeros((B, T, D)))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_mask_of_the_residual_goes_on(scheme):
    ids = np.array([[4, 5, 0], [6, 0, 0]])
    x = keras.layers.Embedding(7, D, mask_zero=True)(ids)
    add_norm = AddNorm(scheme, position=position())
    for y in (add_norm.branch_input(x), add_norm(x, random(2, 3, D))):
        np.testing.assert_array_equal(keras.src.backend.get_keras_mask(y), ids != 0)


@pytest.mark.parametrize(
    "branch_shape", [(B, T, D + 1), (B, D), (B, T + 1, D), (B, 1, D), (1, T, D)]
)
def test_a_branch_of_another_shape_is_an_error(branch_shape):
    with pytest.raises(ValueError, match="does not fit the residual stream"):
        AddNorm()(np.zeros((B, T, D)), np.zeros(branch_shape))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scheme": "post-ln"}, "no such residual scheme.*Expected one of post_ln, pre_ln"),
        ({"norm": "layernorm"}, "no such norm.*Expected one of layer_norm, rms_norm"),
        ({"scheme": "deep_norm"}, "depth of the model, which is not known.*position=StackPosition"),
        ({"position": {"side": "left", "num_encoder_layers": 1, "num_decoder_layers": 1}}, "side"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        AddNorm(**arguments)


def test_a_scheme_may_be_a_name_a_dict_or_an_object():
    for scheme in (
        "layer_scale",
        {"name": "layer_scale", "initial_value": None},
        LayerScale(),
    ):
        assert AddNorm(scheme).scheme == LayerScale()


@pytest.mark.parametrize(("scheme", "norm"), covering(SCHEMES, NORMS, strength=1))
def test_config_round_trip(scheme, norm):
    add_norm = AddNorm(
        scheme, norm, epsilon=1e-3, dropout=0.2, position=position(), drop_path=0.1, name="a"
    )
    clone = AddNorm.from_config(add_norm.get_config())
    assert clone.get_config() == add_norm.get_config()
    assert (clone.scheme, clone.position) == (add_norm.scheme, add_norm.position)
