"""A rising rate on a problem whose limit is known: gradient descent on a parabola."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.training import find_learning_rate
from keras_addnorm.training.learning_rate_finder import LearningRateCurve


@pytest.fixture(scope="module")
def problem():
    """One weight, loss (w x - y)² with x = 1: descent diverges at rates above 1."""
    x, y = np.ones((8, 1), "float32"), np.full((8, 1), 3.0, "float32")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.layers[0].kernel.assign([[0.5]])
    curve = find_learning_rate(
        model,
        (x, y),
        "mse",
        optimizer=keras.optimizers.SGD,
        lowest=1e-3,
        highest=1e3,
        batches=60,
        jit_compile=False,
    )
    return model, curve


@pytest.mark.slow
def test_rates_rise_and_losses_are_those_of_descent(problem):
    _, curve = problem
    growth = 1e6 ** (1 / 60)
    np.testing.assert_allclose(curve.rates, [1e-3 * growth**n for n in range(len(curve.rates))])
    weight, mean, expected = 0.5, 0.0, []
    for count, rate in enumerate(curve.rates, 1):
        mean = 0.9 * mean + 0.1 * (weight - 3.0) ** 2
        expected.append(mean / (1 - 0.9**count))
        weight -= rate * 2 * (weight - 3.0)
    # The last ones diverge, and each rounding with them.
    np.testing.assert_allclose(curve.losses[:35], expected[:35], rtol=1e-4)


@pytest.mark.slow
def test_it_ends_when_the_loss_has_doubled_and_suggests_less_than_the_limit(problem):
    _, curve = problem
    assert len(curve.rates) < 60
    assert curve.losses[-1] > 2 * min(curve.losses)
    assert 0.01 < curve.suggestion < 1.0


def test_the_weights_are_those_from_before(problem):
    model, _ = problem
    assert float(model.layers[0].kernel[0, 0]) == 0.5


def test_the_picture(problem, tmp_path):
    path = problem[1].plot(tmp_path / "rates.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["rates.png"]


def test_the_suggestion_is_a_tenth_of_the_best():
    assert LearningRateCurve((0.1, 0.2, 0.4), (3.0, 1.0, 2.0)).suggestion == pytest.approx(0.02)


def test_the_limits_have_an_order():
    with pytest.raises(ValueError, match=r"Expected 0 < lowest < highest. Received: lowest=1"):
        find_learning_rate(None, None, "mse", lowest=1.0, highest=0.1)
    with pytest.raises(ValueError, match=r"batches of at least 1. Received: 0"):
        find_learning_rate(None, None, "mse", batches=0)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_data_without_a_batch_is_refused():
    x = np.ones((0, 1), "float32")
    nothing = tf.data.Dataset.from_tensor_slices((x, x)).batch(2)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="no batch"):
        find_learning_rate(model, nothing, "mse", batches=3, jit_compile=False)
