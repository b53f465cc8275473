import keras
import numpy as np
import pytest
import tensorflow as tf
from layers_reference import (
    NORMS,
    SCHEMES,
    B,
    D,
    T,
    array,
    branch_input,
    layer_norm,
    merge,
    position,
    random,
    randomize,
)

from keras_addnorm.layers import AddNorm
from keras_addnorm.schemes import LayerScale


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_equals_the_formula(scheme, norm):
    x, f = random(B, T, D), random(B, T, D, seed=4)
    add_norm = AddNorm(scheme, norm, position=position("decoder"), dtype="float64")
    add_norm(x, f)
    randomize(add_norm)
    np.testing.assert_allclose(
        add_norm.branch_input(x), branch_input(add_norm, scheme, x), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(
        add_norm(x, f), merge(add_norm, scheme, x, f), rtol=1e-12, atol=1e-12
    )


WEIGHTS = {
    "post_ln": {"post_norm/gamma": 1.0, "post_norm/beta": 0.0},
    "pre_ln": {"pre_norm/gamma": 1.0, "pre_norm/beta": 0.0},
    "sandwich_ln": {
        "pre_norm/gamma": 1.0,
        "pre_norm/beta": 0.0,
        "branch_norm/gamma": 1.0,
        "branch_norm/beta": 0.0,
    },
    "res_post_norm": {"branch_norm/gamma": 1.0, "branch_norm/beta": 0.0},
    "sub_ln": {"pre_norm/gamma": 1.0, "pre_norm/beta": 0.0},
    "mix_ln": {"pre_norm/gamma": 1.0, "pre_norm/beta": 0.0},
    "ln_scaling": {"pre_norm/gamma": 1.0, "pre_norm/beta": 0.0},
    "deep_norm": {"post_norm/gamma": 1.0, "post_norm/beta": 0.0},
    "admin": {"post_norm/gamma": 1.0, "post_norm/beta": 0.0, "skip_scale": 1.0},
    "rezero": {"branch_scale": 0.0},
    "layer_scale": {"pre_norm/gamma": 1.0, "pre_norm/beta": 0.0, "branch_scale": 0.1},
    "no_norm": {},
    "no_residual": {"post_norm/gamma": 1.0, "post_norm/beta": 0.0},
    "plain": {},
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_has_the_weights_of_its_scheme_and_no_more(scheme):
    add_norm = AddNorm(scheme, position=position(), name="a")
    add_norm.build((B, T, D))
    found = {w.path.removeprefix("a/"): array(w) for w in add_norm.weights}
    assert found.keys() == WEIGHTS[scheme].keys()
    for path, values in found.items():
        assert values.shape == (() if (scheme, path) == ("rezero", "branch_scale") else (D,))
        np.testing.assert_allclose(values, WEIGHTS[scheme][path], rtol=1e-7)


def test_rms_norm_has_a_gain_and_no_offset():
    add_norm = AddNorm(norm="rms_norm", name="a")
    add_norm.build((B, T, D))
    assert [w.path for w in add_norm.weights] == ["a/post_norm/scale"]
    np.testing.assert_array_equal(array(add_norm.weights[0]), np.ones(D))


def test_alone_it_is_the_box_of_the_paper():
    x, f = random(B, T, D), random(B, T, D, seed=4)
    expected = layer_norm(x + f, 1.0, 0.0)
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
    np.testing.assert_array_equal(add_norm(x, f), x + f)
    dropped = array(add_norm(x, f, training=True))
    assert set(np.unique(dropped)) == {100.0, 102.0}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_mask_of_the_residual_goes_on(scheme):
    ids = np.array([[4, 5, 0], [6, 0, 0]])
    x = keras.layers.Embedding(7, D, mask_zero=True)(ids)
    add_norm = AddNorm(scheme, position=position())
    for y in (add_norm(x, random(2, 3, D)), add_norm.branch_input(x)):
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


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_config_round_trip(scheme, norm):
    add_norm = AddNorm(scheme, norm, epsilon=1e-3, dropout=0.2, position=position(), name="a")
    clone = AddNorm.from_config(add_norm.get_config())
    assert clone.get_config() == add_norm.get_config()
    assert (clone.scheme, clone.position) == (add_norm.scheme, add_norm.position)
