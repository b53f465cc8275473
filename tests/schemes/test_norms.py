import keras
import numpy as np
import pytest

from keras_addnorm import norms

X = np.random.default_rng(2).normal(3.0, 2.0, (2, 3, 5))


def test_the_table_has_these_names():
    assert norms.names() == (
        "layer_norm",
        "rms_norm",
        "scale_norm",
        "dynamic_tanh",
        "std_layer_norm",
        "batch_norm",
        "none",
    )


def test_layer_norm():
    layer = norms.get("layer_norm")(epsilon=0.01, dtype="float64", name="n")
    centred = X - X.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.01)
    np.testing.assert_allclose(layer(X), expected, rtol=1e-12, atol=1e-12)
    assert layer.name == "n"


def test_rms_norm():
    layer = norms.get("rms_norm")(epsilon=0.01, dtype="float64")
    expected = X / np.sqrt((X**2).mean(-1, keepdims=True) + 0.01)
    np.testing.assert_allclose(layer(X), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", norms.names())
def test_an_entry_makes_a_new_layer_each_time(name):
    first, second = norms.get(name)(epsilon=1e-6), norms.get(name)(epsilon=1e-6)
    assert isinstance(first, keras.layers.Layer)
    assert first is not second


@pytest.mark.parametrize("name", norms.names())
def test_a_norm_hands_on_the_mask_without_a_warning(name):
    x = keras.layers.Embedding(5, 3, mask_zero=True)(np.array([[4, 0]]))
    y = norms.get(name)(epsilon=1e-6)(x)
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(y), [[True, False]])


@pytest.mark.parametrize("name", ["layernorm", "", None, 3])
def test_an_unknown_norm_lists_what_there_is(name):
    with pytest.raises(ValueError, match=r"no such norm.*layer_norm, rms_norm.*Received"):
        norms.get(name)
