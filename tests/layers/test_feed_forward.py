import math

import keras
import numpy as np
import pytest
from layers_reference import B, D, F, T, array, project, random, randomize

from keras_addnorm.layers import FeedForward


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    # x Phi(x), not the approximation by tanh.
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FUNCTIONS = {
    "relu": (lambda x: np.maximum(x, 0), False),
    "gelu": (gelu, False),
    "gelu_tanh": (gelu_tanh, False),
    "gelu_sigmoid": (lambda x: x * sigmoid(1.702 * x), False),
    "silu": (lambda x: x * sigmoid(x), False),
    "linear": (lambda x: x, False),
    "glu": (sigmoid, True),
    "reglu": (lambda x: np.maximum(x, 0), True),
    "geglu": (gelu, True),
    "geglu_tanh": (gelu_tanh, True),
    "swiglu": (lambda x: x * sigmoid(x), True),
}


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_equals_the_formula(activation):
    function, is_gated = FUNCTIONS[activation]
    layer, x = FeedForward(F, activation, dtype="float64"), random(B, T, D)
    layer(x)
    randomize(layer)
    h = project(layer.intermediate_projection, x)
    h = function(project(layer.gate_projection, x)) * h if is_gated else function(h)
    # Keras computes the constants of gelu in float32; tanh's approximation would be off by 1e-3.
    tolerance = 1e-6 if "gelu" in activation or "geglu" in activation else 1e-11
    expected = project(layer.output_projection, h)
    np.testing.assert_allclose(layer(x), expected, rtol=tolerance, atol=tolerance)
    assert len(layer.weights) == (6 if is_gated else 4)


def test_works_on_rank_2_too():
    layer, x = FeedForward(F), random(B, T, D)
    y = layer(x)
    np.testing.assert_allclose(layer(x[:, 1]), y[:, 1], rtol=1e-5, atol=1e-6)


def test_the_gain_falls_on_all_kernels_and_no_bias():
    constant = keras.initializers.Constant
    layer = FeedForward(
        F,
        "swiglu",
        kernel_initializer=constant(2.0),
        bias_initializer=constant(3.0),
        init_gain=0.25,
    )
    layer.build((B, T, D))
    for weight in layer.weights:
        np.testing.assert_array_equal(array(weight), 0.5 if len(weight.shape) == 2 else 3.0)


def test_without_biases():
    layer = FeedForward(F, "geglu", use_bias=False)
    layer.build((B, T, D))
    assert [tuple(w.shape) for w in layer.weights] == [(D, F), (D, F), (F, D)]


def test_dropout_only_while_training():
    layer, x = FeedForward(F, dropout=0.5), random(B, T, D)
    y = array(layer(x))
    np.testing.assert_array_equal(layer(x, training=False), y)
    assert np.abs(array(layer(x, training=True)) - y).max() > 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"intermediate_dim": 0}, "intermediate_dim has to be a positive integer. Received: 0"),
        ({"intermediate_dim": 3, "activation": "swish_glu"}, "no such activation.*swiglu.*'swish"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        FeedForward(**arguments)


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_config_round_trip(activation):
    layer = FeedForward(
        F,
        activation,
        dropout=0.1,
        use_bias=False,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.3),
        bias_initializer="ones",
        init_gain=0.7,
        name="a",
    )
    clone = FeedForward.from_config(layer.get_config())
    assert clone.get_config() == layer.get_config()
    assert clone.kernel_initializer.stddev == 0.3
