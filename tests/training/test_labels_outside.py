"""A label that is no id of the vocabulary gives no plausible number: it is refused, or NaN."""

import numpy as np
import pytest
import tensorflow as tf
from loss_modes import MODES
from new_process import run_on
from training_reference import V, batch

from keras_addnorm.training import (
    MaskedAccuracy,
    MaskedSparseCategoricalCrossentropy,
    MinimumRisk,
    Perplexity,
    RDropCrossentropy,
)

WRONG = (-1, V, 2**32 + 2)  # The last one is 2 if it is cut to 32 bits.
LOSSES = {
    "plain": MaskedSparseCategoricalCrossentropy(0.1),
    "r_drop": RDropCrossentropy(5.0),
    "minimum_risk": MinimumRisk(3),
}


def spoiled(value, pad_id=0):
    # Six rows: three pairs, and two sentences with two candidates each.
    labels, logits = (np.concatenate([array[:3], array[:3]]) for array in batch())
    labels = np.where(labels == 0, pad_id, labels).astype("int64")
    labels[1, 0] = value
    return labels, logits.astype("float32")


def rewards(loss):
    return (
        np.array([1, 0.5, 0.2, 1, 0.3, 0.9], "float32") if isinstance(loss, MinimumRisk) else None
    )


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_refuses_what_it_can_look_at(kind, value):
    loss, (labels, logits) = LOSSES[kind], spoiled(value)
    for given in (labels, labels.tolist(), tf.constant(labels)):
        with pytest.raises(ValueError, match=rf"outside the vocabulary.*Received: {value}\."):
            loss(given, logits, rewards(loss))


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("mode", ["graph", "xla"])
@pytest.mark.parametrize("kind", LOSSES)
def test_a_compiled_loss_is_nan(kind, mode, value):
    loss, (labels, logits) = LOSSES[kind], spoiled(value)
    found, gradient = MODES[mode](loss, tf.constant(labels), logits, rewards(loss))
    assert np.isnan(found)
    assert np.isnan(gradient[1, 0]).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["plain", "r_drop"])
def test_labels_that_do_not_count_may_be_any(kind, mode):
    """Padding of -100, and a label of weight 0, change neither the loss nor its gradient."""
    kinds = {"plain": MaskedSparseCategoricalCrossentropy, "r_drop": RDropCrossentropy}
    loss = kinds[kind](pad_id=-100)
    (labels, logits), (inside, _) = spoiled(V + 4, -100), spoiled(2, -100)
    weights = np.ones(labels.shape, "float32")
    weights[1, 0] = 0
    found = MODES[mode](loss, tf.constant(labels), logits, weights)
    expected = MODES[mode](loss, tf.constant(inside), logits, weights)
    for one, other in zip(found, expected, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("metric", [MaskedAccuracy, Perplexity])
@pytest.mark.parametrize("value", WRONG)
def test_metrics(metric, value):
    labels, logits = spoiled(value)
    metric = metric()
    with pytest.raises(ValueError, match=f"{type(metric).__name__} got a label outside"):
        metric.update_state(labels, logits)
    update = tf.function(metric.update_state, jit_compile=True)
    update(tf.constant(labels), logits)
    assert np.isnan(metric.result())
    metric.reset_state()
    weights = np.ones(labels.shape, "float32")
    weights[1, 0] = 0
    update(tf.constant(labels), logits, weights)
    assert np.isfinite(metric.result())


def test_labels_of_few_bits():
    """A vocabulary that is larger than the type of the labels: nothing wraps around."""
    logits = np.zeros((1, 2, 300), "float32")
    logits[0, :, 257] = 5.0  # 257 of eight bits is 1
    for dtype in ("int8", "uint8", "int64"):
        labels = tf.constant(np.array([[1, 7]], dtype))
        update = tf.function(MaskedAccuracy(), jit_compile=True)
        assert float(update(labels, logits)) == 0
        loss = tf.function(LOSSES["plain"], jit_compile=True)
        expected = np.log(299 + np.exp(5.0)) - 0.1 * 5 / 300
        assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-5)


SCRIPT = """
import keras, numpy as np
import test_labels_outside as t

for kind in ("plain", "r_drop"):
    loss, (labels, logits) = t.LOSSES[kind], t.spoiled(t.V)
    if keras.backend.backend() == "jax":
        import jax
        both = jax.jit(lambda z, y: jax.value_and_grad(lambda z: loss(y, z))(z))
        found, gradient = both(logits, labels)
    else:
        import torch
        z = torch.tensor(logits, requires_grad=True)
        found = loss(torch.tensor(labels), z)
        found.backward()
        found, gradient = found.detach(), z.grad
    assert np.isnan(found) and np.isnan(np.asarray(gradient)[1, 0]).all()
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.release)])
def test_other_backends(backend, request):
    folders = (request.path.parent, request.path.parents[1])
    run_on(backend, "-W", "ignore", "-c", SCRIPT, folders=folders)
