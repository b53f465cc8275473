import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from fit_on_backend import VOCABULARY_SIZE, compiled_model, pairs, run
from new_process import run_on
from training_reference import weights

from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

HERE = Path(__file__).parent


def found_on(backend, *program):
    return json.loads(run_on(backend, "-W", "ignore", *program).splitlines()[-1])


def assert_same_run(one, other, rtol):
    for key, values in one["history"].items():
        np.testing.assert_allclose(values, other["history"][key], rtol=rtol, err_msg=key)
    np.testing.assert_allclose(one["weighted"], other["weighted"], rtol=rtol)
    for which in ("weights", "r_drop", "minimum risk"):
        for a, b in zip(one[which], other[which], strict=True):
            np.testing.assert_allclose(a, b, atol=rtol, err_msg=which)


@pytest.fixture(scope="module")
def expected():
    return run(jit_compile=False)


def test_the_run_learns_and_padding_teaches_nothing(expected):
    losses = expected["history"]["loss"]
    assert losses[-1] < losses[0] - 0.3
    assert expected["padding only"] == [[0.0], [0.0], [1.0]]
    assert expected["moved by padding"] == 0.0


def test_the_run_is_gradient_descent_on_the_definition(expected):
    """The whole of `fit` again in NumPy: forward, loss, gradient, schedule and update."""
    source, labels = pairs()
    table, kernel, bias = (np.asarray(w, "float64") for w in compiled_model(None).get_weights())
    step = 0
    for _ in range(3):
        for first in (0, 2, 4):
            x, y = source[first : first + 2], labels[first : first + 2]
            hidden = table[x]
            p = np.exp(hidden @ kernel + bias)
            p /= p.sum(-1, keepdims=True)
            q = 0.9 * (y[..., None] == np.arange(VOCABULARY_SIZE)) + 0.1 / VOCABULARY_SIZE
            w = weights(y)
            slope = (w / w.sum())[..., None] * (p - q)
            rate = 2.0 * min(step / 3, (3 / max(step, 3)) ** 0.5)
            d_table = np.zeros_like(table)
            np.add.at(d_table, x, slope @ kernel.T)
            kernel = kernel - rate * np.einsum("btd,btv->dv", hidden, slope)
            bias = bias - rate * slope.sum((0, 1))
            table = table - rate * d_table
            step += 1
    for ours, theirs in zip((table, kernel, bias), expected["weights"], strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-5)


@pytest.mark.slow
def test_xla_equals_eager(expected):
    assert_same_run(run(jit_compile=True), expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_other_backends_run_the_same_and_without_tensorflow(backend, expected):
    other = found_on(backend, HERE / "fit_on_backend.py")
    assert_same_run(other, expected, rtol=1e-5)
    assert other["padding only"] == [[0.0], [0.0], [1.0]]
    assert other["moved by padding"] == 0.0
    assert not other["tensorflow"]


def test_a_keras_mask_on_the_logits_changes_nothing():
    source, labels = pairs()
    results = [
        compiled_model(False, mask_zero=mask_zero).evaluate(source, labels, verbose=0)
        for mask_zero in (True, False)
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-7)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_fits(policy, expected):
    source, labels = pairs()
    model = compiled_model(True, policy=policy)
    losses = model.fit(source, labels, batch_size=2, epochs=3, verbose=0, shuffle=False)
    np.testing.assert_allclose(losses.history["loss"], expected["history"]["loss"], rtol=0.02)


def test_a_compiled_model_comes_back_from_its_file(tmp_path):
    source, labels = pairs()
    model = compiled_model(False)
    model.fit(source, labels, epochs=1, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.loss) is MaskedSparseCategoricalCrossentropy
    assert again.loss.label_smoothing == 0.1
    np.testing.assert_allclose(
        again.evaluate(source, labels, verbose=0), model.evaluate(source, labels, verbose=0)
    )
    assert again.optimizer._learning_rate.get_config() == {
        "peak_learning_rate": 2.0,
        "warmup_steps": 3,
    }


REPLICAS = """
import json
import numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy
labels = np.array([[1, 2, 0], [3, 0, 0]])
logits = np.cos(np.arange(30.0)).reshape(2, 3, 5)
loss = MaskedSparseCategoricalCrossentropy(0.1)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
each = strategy.run(lambda: loss(labels, logits))
print(json.dumps([float(strategy.reduce("SUM", each, axis=None)), float(loss(labels, logits))]))
"""


@pytest.mark.slow
def test_replicas_share_the_loss():
    """Gradients of replicas are summed: each contributes its mean divided by their number."""
    together, alone = found_on("tensorflow", "-c", REPLICAS)
    assert together == pytest.approx(alone, rel=1e-12)


def test_the_loss_compiles_with_unknown_shapes():
    """One trace for every batch: nothing in it reads a shape in Python."""
    loss = MaskedSparseCategoricalCrossentropy(0.1)
    compiled = tf.function(
        loss,
        jit_compile=True,
        input_signature=[
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None, None, None), tf.float32),
        ],
    )
    for shape in [(2, 3, 5), (3, 7, 11)]:
        logits = np.cos(np.arange(np.prod(shape))).reshape(shape).astype("float32")
        labels = (np.arange(shape[0] * shape[1]) % shape[2]).reshape(shape[:2]).astype("int32")
        np.testing.assert_allclose(compiled(labels, logits), loss(labels, logits), rtol=1e-6)
    assert compiled.experimental_get_tracing_count() == 1
