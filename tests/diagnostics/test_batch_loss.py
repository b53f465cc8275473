"""The loss that diagnostics look at is the one that `evaluate` gives for the batch."""

import keras
import numpy as np
import pytest
from filled_models import LABELS, array, batch, tiny_model
from keras import ops
from new_process import run_on

from keras_addnorm.diagnostics import (
    ResidualMonitor,
    effective_depth,
    inspect,
    loss_gradients,
)
from keras_addnorm.layers import TransformerEncoder
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

X = np.random.default_rng(3).normal(size=(3, 5, 8)).astype("float32")
Y = np.array([0.0, 1.0, 1.0], "float32")  # (B,) beside outputs (B, 1)
IDS = np.array([2, 0, 3])
WEIGHTS = np.array([1.0, 2.0, 5.0], "float32")
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Penalty(keras.layers.Layer):
    """Adds a loss to each call."""

    def call(self, inputs):
        self.add_loss(ops.mean(ops.square(inputs)))
        return inputs


def pooled():
    inputs = keras.Input((5, 8))
    x = TransformerEncoder(num_layers=1, num_heads=2, intermediate_dim=7, scheme="pre_ln")(inputs)
    return inputs, keras.layers.GlobalAveragePooling1D()(Penalty()(x))


def one_output(width=1, activation="sigmoid"):
    inputs, x = pooled()
    return keras.Model(
        inputs,
        keras.layers.Dense(width, activation=activation, kernel_regularizer="l2")(x),
    )


def two_outputs(in_a_dict):
    inputs, x = pooled()
    a, b = keras.layers.Dense(1, name="a")(x), keras.layers.Dense(4, name="b")(x)
    return keras.Model(inputs, {"a": a, "b": b} if in_a_dict else [a, b])


def absolute(labels, outputs):
    return ops.abs(labels - outputs)


def mean_absolute(labels, outputs):
    return ops.mean(ops.abs(labels - outputs))


class OwnLoss(keras.Model):
    """A model with a `compute_loss`, and a metric in it."""

    def __init__(self):
        super().__init__()
        self.encoder = TransformerEncoder(num_layers=1, num_heads=2, intermediate_dim=7)
        self.seen = keras.metrics.Mean(name="loss")

    def call(self, inputs):
        return ops.mean(self.encoder(inputs), axis=(1, 2))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        loss = ops.mean(ops.abs(y - y_pred)) + ops.mean(x)
        self.seen.update_state(loss)
        return loss


def cases():
    for loss in ("mse", "binary_crossentropy", absolute, mean_absolute):
        yield getattr(loss, "__name__", loss), one_output, loss, None, Y
    yield "object", one_output, keras.losses.BinaryCrossentropy(), None, Y
    yield "ids", lambda: one_output(4, "softmax"), "sparse_categorical_crossentropy", None, IDS
    yield "added alone", one_output, None, None, Y
    both, weights = {"a": "mse", "b": LOGITS}, {"a": 0.3, "b": 2.0}
    yield "dict", lambda: two_outputs(True), both, weights, {"a": Y, "b": IDS}
    yield "list", lambda: two_outputs(False), ["mse", LOGITS], [0.3, 2.0], [Y, IDS]
    yield "one of two", lambda: two_outputs(False), [None, LOGITS], None, [Y, IDS]


CASES = {name: case for name, *case in cases()}


def compiled_model(case):
    make, loss, loss_weights, labels = CASES[case]
    model = make()
    model.compile("sgd", loss, loss_weights=loss_weights)
    return model, labels


def evaluated(model, labels, weights=None):
    found = model.evaluate(X, labels, sample_weight=weights, verbose=0)
    return found[0] if isinstance(found, list) else found


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize("case", CASES)
def test_it_is_what_evaluate_gives(case):
    model, labels = compiled_model(case)
    found = inspect(model, (X, labels)).loss  # Before Keras has made any metric of the losses.
    state = model.get_metrics_result() if model.metrics else None
    assert found == pytest.approx(evaluated(model, labels), rel=1e-5)
    model.reset_metrics()
    assert loss_gradients(model, X, labels).loss == pytest.approx(found, rel=1e-5)
    assert str(model.get_metrics_result() if model.metrics else None) == str(state)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["mse", "dict", "list"])
def test_it_is_so_in_a_trace_and_with_sample_weights(case):
    model, labels = compiled_model(case)
    weighted = (X, labels, WEIGHTS)
    found = effective_depth(model, weighted).loss
    assert found == pytest.approx(evaluated(model, labels, WEIGHTS), rel=1e-5)
    assert inspect(model, weighted).loss == pytest.approx(found, rel=1e-5)
    assert effective_depth(model, (X, labels)).loss != pytest.approx(found, rel=1e-3)


def test_gradients_are_those_of_the_whole_loss():
    model, _ = compiled_model("mse")
    kernel = model.layers[-1].kernel
    found = loss_gradients(model, X, Y).weights[kernel.path]
    value, step = array(kernel), np.zeros(kernel.shape, "float32")
    step[2, 0] = 0.02
    losses = []
    for sign in (1, -1):
        kernel.assign(value + sign * step)
        losses.append(loss_gradients(model, X, Y).loss)
    assert found[2, 0] == pytest.approx((losses[0] - losses[1]) / 0.04, rel=1e-2)


def test_a_compute_loss_is_called_and_its_metric_left_alone():
    model = OwnLoss()
    model(X)
    model.compile("sgd")
    found = inspect(model, (X, Y)).loss
    assert float(model.seen.result()) == 0
    assert found == pytest.approx(evaluated(model, Y), rel=1e-5)


def test_a_mask_leaves_positions_out():
    inputs = keras.Input((5, 8))
    x = TransformerEncoder(num_layers=1, num_heads=2, intermediate_dim=7)(
        keras.layers.Masking()(inputs)
    )
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    x, y = X.copy(), X[..., :1]
    x[0, 3:] = x[1, 1:] = 0
    expected = model.evaluate(x, y, verbose=0)
    assert inspect(model, (x, y)).loss == pytest.approx(expected, rel=1e-5)
    assert np.mean((array(model(x)) - y) ** 2) != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("loss", ["mae", keras.losses.mean_absolute_error, absolute, mean_absolute])
def test_a_loss_that_is_passed_is_reduced_as_by_compile(loss):
    model = one_output()
    outputs = array(model(X))[:, 0]
    for labels in (Y, Y[:, None]):
        found = loss_gradients(model, X, labels, loss).loss
        assert found == pytest.approx(np.mean(np.abs(outputs - Y)), rel=1e-5)
    if loss != mean_absolute:
        found = inspect(model, (X, Y, WEIGHTS), loss).loss
        assert found == pytest.approx(np.mean(np.abs(outputs - Y) * WEIGHTS), rel=1e-5)


def test_no_loss_and_no_scalar_are_refused():
    inputs = keras.Input((5, 8))
    encoder = TransformerEncoder(num_layers=1, num_heads=2, intermediate_dim=7)
    model = keras.Model(inputs, keras.layers.Dense(1)(encoder(inputs)[:, 0]))
    for compile_it in (lambda: None, lambda: model.compile("sgd")):
        compile_it()
        with pytest.raises(ValueError, match=r"There is no loss to look at\. Expected a compiled"):
            inspect(model, (X, IDS))
    model.compile("sgd", keras.losses.MeanSquaredError(reduction=None))
    with pytest.raises(ValueError, match=r"Expected a scalar.*shape \(3,\)"):
        effective_depth(model, (X, Y))
    with pytest.raises(ValueError, match=r"the name of one, or None.*go to compile"):
        inspect(model, (X, Y), {"a": "mse"})
    with pytest.raises(ValueError, match="A batch has two or three parts"):
        inspect(model, (X,))


def test_labels_outside_the_vocabulary_are_refused():
    model = tiny_model()
    labels = np.where(LABELS == 6, 50, LABELS)
    for look in (inspect, effective_depth):
        with pytest.raises(ValueError, match=r"label id lies outside.*Expected 0 <= id < 11"):
            look(model, (batch(), labels))
    with pytest.raises(ValueError, match="label id lies outside"):
        loss_gradients(model, batch(), labels, MaskedSparseCategoricalCrossentropy())
    with pytest.raises(ValueError, match="takes probabilities"):
        inspect(model, (batch(), LABELS), "sparse_categorical_crossentropy")


@pytest.mark.slow
def test_the_monitor_watches_all_losses_and_leaves_their_metrics_alone(tmp_path):
    histories = []
    for every in (1, 0):
        keras.utils.set_random_seed(1)
        model, labels = compiled_model("dict")
        monitor = ResidualMonitor((X, labels), every=1, csv=tmp_path / "log.csv")
        callbacks = [monitor] if every else []
        history = model.fit(X, labels, epochs=2, verbose=0, callbacks=callbacks).history
        histories.append(history)
        if every:
            norms = {
                name: np.linalg.norm(g)
                for name, g in loss_gradients(model, X, labels).residuals.items()
            }
            assert {
                row.sublayer: pytest.approx(row.gradient_norm, rel=1e-4) for row in monitor.rows
            } == norms
    assert histories[0].keys() == histories[1].keys()
    for name, values in histories[0].items():
        np.testing.assert_allclose(values, histories[1][name], rtol=1e-5)


SCRIPT = """
import test_batch_loss as t

for case in ("mse", "dict"):
    model, labels = t.compiled_model(case)
    batch = (t.X, labels, t.WEIGHTS)
    found = [t.inspect(model, batch).loss, t.effective_depth(model, batch).loss]
    t.np.testing.assert_allclose(found, t.evaluated(model, labels, t.WEIGHTS), rtol=1e-5)
"""


@pytest.mark.release
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_other_backends(backend, tmp_path, request):
    folders = (request.path.parent, request.path.parents[1])
    run_on(backend, "-W", "ignore", "-c", SCRIPT, folders=folders)
