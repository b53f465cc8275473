"""The example of a scheme of two streams: it trains, is saved, and is what its first lines say."""

import pathlib
import runpy

import keras
import numpy as np
import pytest

from keras_addnorm import schemes
from keras_addnorm.layers import TransformerEncoder

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "own_streams.py"


@pytest.fixture
def example(monkeypatch):
    """What the example defines; the table of schemes forgets its class afterwards."""
    monkeypatch.setattr(schemes._TABLE, "_classes", dict(schemes._TABLE._classes))
    return runpy.run_path(str(EXAMPLE))


def test_two_sublayers_by_hand_and_its_files(example, tmp_path):
    x = np.random.default_rng(3).normal(size=(2, 3, 4)).astype("float32")
    inputs = keras.Input((3, 4))
    stack = TransformerEncoder(
        1, num_heads=2, intermediate_dim=5, scheme=example["SumAndLatest"](0.25)
    )
    model = keras.Model(inputs, stack(inputs))
    layer = stack.layers[0]
    first = layer.self_attention(layer.self_attention_add_norm.pre_norm(x))
    second = layer.feed_forward(layer.feed_forward_add_norm.pre_norm(x + 2 * first))
    expected = stack.final_norm(x + first + second + 0.25 * first + second)
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-5)
    model.save(tmp_path / "m.keras")
    reloaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(reloaded(x), model(x))


@pytest.mark.slow
def test_it_trains(example):
    losses = example["main"]()
    assert 0 < losses["sum_and_latest"] < 0.5
