"""The monitor logs what NumPy finds in the same batch, and training does not notice it."""

import pathlib

import keras
import numpy as np
import pytest
from filled_models import LABELS, array, batch, tiny_model
from new_process import run_on
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_addnorm.diagnostics import (
    ResidualLog,
    ResidualMonitor,
    ResidualRow,
    loss_gradients,
    observe,
)
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

HERE = pathlib.Path(__file__).parent
SUBLAYERS = (
    "encoder/0/self_attention",
    "encoder/0/feed_forward",
    "decoder/0/self_attention",
    "decoder/0/cross_attention",
    "decoder/0/feed_forward",
)


def train(callbacks, epochs=2, jit_compile=False, dtype=None, checkpoint=None, steps=1):
    """Three steps an epoch, with dropout, from the same start."""
    keras.utils.set_random_seed(11)
    model = tiny_model(scheme="pre_ln", dtype=dtype, num_encoder_layers=1)
    model.compile(
        keras.optimizers.Adam(0.01),
        MaskedSparseCategoricalCrossentropy(),
        jit_compile=jit_compile,
        steps_per_execution=steps,
    )
    if checkpoint is not None:
        model.optimizer.build(model.trainable_variables)
        model.load_weights(checkpoint)
    model.fit(
        batch(), LABELS, batch_size=1, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks
    )
    return model


def in_numpy(model):
    """By sublayer: what the columns have to be, from `observe` and plain NumPy."""
    with observe(model) as observation:
        model(batch())
    gradients = loss_gradients(model, batch(), LABELS).residuals
    found = {}
    for record in observation:
        real = (batch()["source" if record.name.startswith("encoder") else "target"]) != 0
        x, f, y = (
            array(keras.ops.cast(t, "float32"))[real].astype("float64")
            for t in (record.residual, record.branch, record.merged)
        )
        lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
        found[record.name] = [
            np.sqrt(np.mean(x**2)),
            np.sqrt(np.mean(f**2)),
            np.sqrt(np.mean(y**2)),
            np.linalg.norm(f) / np.linalg.norm(x),
            np.mean(np.sum(x * y, axis=1) / lengths),
            np.linalg.norm(gradients[record.name].astype("float64")),
            *map(np.mean, (x, f, y)),
        ]
    return found


def columns(row):
    return [
        row.residual_rms,
        row.branch_rms,
        row.merged_rms,
        row.residual_ratio,
        row.cosine,
        row.gradient_norm,
        row.residual_mean,
        row.branch_mean,
        row.merged_mean,
    ]


@pytest.mark.slow
def test_the_log_holds_what_numpy_finds_in_the_same_batch(tmp_path):
    monitor = ResidualMonitor((batch(), LABELS), every=2, csv=tmp_path / "residuals.csv")
    model = train([monitor])
    rows = ResidualLog(tmp_path / "residuals.csv").read()
    assert [(row.step, row.sublayer) for row in rows] == [
        (step, name) for step in (0, 2, 4, 6) for name in SUBLAYERS
    ]
    expected = in_numpy(model)
    for row in rows[-len(SUBLAYERS) :]:
        np.testing.assert_allclose(columns(row), expected[row.sublayer], rtol=2e-5, atol=1e-7)
    assert rows[-len(SUBLAYERS) :] == [*monitor.rows]
    assert rows[0] != rows[-len(SUBLAYERS)]
    assert monitor.traces == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "jit_compile"),
    [("float32", False), pytest.param("mixed_float16", True, marks=pytest.mark.release)],
)
def test_training_does_not_notice_it(dtype, jit_compile, tmp_path):
    """Weights, optimiser and dropout's random numbers: the same to the last bit."""
    monitor = ResidualMonitor((batch(), LABELS), every=1, csv=tmp_path / "r.csv")
    watched = train([monitor], epochs=1, jit_compile=jit_compile, dtype=dtype)
    alone = train([], epochs=1, jit_compile=jit_compile, dtype=dtype)
    assert monitor.traces == 1
    assert len(monitor.rows) == len(SUBLAYERS)
    pairs = [
        *zip(watched.variables, alone.variables, strict=True),
        *zip(watched.optimizer.variables, alone.optimizer.variables, strict=True),
    ]
    for one, other in pairs:
        np.testing.assert_array_equal(array(one), array(other), err_msg=one.path)
    tolerance = 2e-5 if dtype == "float32" else 0.06
    expected = in_numpy(watched)
    for row in monitor.rows:
        np.testing.assert_allclose(
            columns(row), expected[row.sublayer], rtol=tolerance, atol=tolerance / 100
        )


@pytest.mark.slow
def test_a_training_that_goes_on_appends_and_drops_what_it_trains_again(tmp_path):
    path = tmp_path / "residuals.csv"
    train([ResidualMonitor((batch(), LABELS), every=2, csv=path)], epochs=1).save_weights(
        tmp_path / "three.weights.h5"
    )
    first = path.read_bytes()
    # A training that got as far as this and was killed, without a checkpoint.
    ResidualLog(path).append([ResidualRow(4, name, *[0.0] * 6) for name in SUBLAYERS])
    train(
        [ResidualMonitor((batch(), LABELS), every=2, csv=path)],
        checkpoint=tmp_path / "three.weights.h5",
        epochs=1,
    )
    rows = ResidualLog(path).read()
    assert [row.step for row in rows[:: len(SUBLAYERS)]] == [0, 2, 4, 6]
    assert all(row.residual_rms > 0 for row in rows)
    assert path.read_bytes().startswith(first)


@pytest.mark.slow
def test_a_new_training_starts_the_log_anew(tmp_path):
    path = tmp_path / "residuals.csv"
    for _ in range(2):
        train([ResidualMonitor((batch(), LABELS), every=3, csv=path)], epochs=1)
    assert [row.step for row in ResidualLog(path).read()[:: len(SUBLAYERS)]] == [0, 3]


@pytest.mark.slow
@pytest.mark.parametrize(("together", "expected"), [(3, [0, 3, 6]), (2, [0, 2, 5, 6])])
def test_several_steps_in_one_execution_are_counted(together, expected, tmp_path):
    """The second of two steps of an epoch's last execution is not there, but Keras counts it."""
    monitor = ResidualMonitor((batch(), LABELS), every=2, csv=tmp_path / "r.csv")
    train([monitor], epochs=2, steps=together)
    steps = [row.step for row in ResidualLog(tmp_path / "r.csv").read()[:: len(SUBLAYERS)]]
    assert steps == expected


@pytest.mark.slow
def test_tensorboard_gets_a_scalar_for_each_sublayer_and_column(tmp_path):
    monitor = ResidualMonitor((batch(), LABELS), every=3, tensorboard=tmp_path)
    train([monitor], epochs=1)
    events = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    tags = events.Tags()["tensors"]
    assert len(tags) == 9 * len(SUBLAYERS)
    found = events.Tensors("residual_ratio/decoder/0/cross_attention")
    assert [event.step for event in found] == [0, 3]
    (row,) = [row for row in monitor.rows if row.sublayer == "decoder/0/cross_attention"]
    (value,) = found[-1].tensor_proto.float_val
    np.testing.assert_allclose(value, row.residual_ratio, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"csv": "a.csv", "every": 0}, r"every has to be positive\. .*Received: 0"),
        ({}, r"nowhere to write to.*csv='residuals\.csv'"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ResidualMonitor((batch(), LABELS), **options)


def test_a_model_without_add_and_norm_is_refused_before_it_trains(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    x, y = np.ones((4, 3)), np.ones((4, 2))
    monitor = ResidualMonitor((x, y), csv=tmp_path / "r.csv")
    with pytest.raises(ValueError, match="no Add & Norm"):
        model.fit(x, y, verbose=0, callbacks=[monitor])
    assert not (tmp_path / "r.csv").exists()


def test_a_batch_that_does_not_fit_is_refused_before_the_model_trains(tmp_path):
    inputs = {"source": batch()["source"], "target": batch()["target"][:2]}
    monitor = ResidualMonitor((inputs, LABELS), csv=tmp_path / "r.csv")
    with pytest.raises(ValueError, match=r"does not take the monitor's batch.*\(2, 5\)"):
        train([monitor])
    assert not (tmp_path / "r.csv").exists()


SCRIPT = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import keras
import test_residual_monitor as t
from keras_addnorm.diagnostics import ResidualMonitor
monitor = ResidualMonitor((t.batch(), t.LABELS), every=2, csv=sys.argv[2])
jit_compile = keras.backend.backend() == "jax"
watched, alone = t.train([monitor], 1, jit_compile), t.train([], 1, jit_compile)
for one, other in zip(watched.variables, alone.variables, strict=True):
    np.testing.assert_array_equal(t.array(one), t.array(other))
assert [row.step for row in monitor.log.read()[::len(t.SUBLAYERS)]] == [0, 2]
monitor._step = 3
monitor._record()
expected = t.in_numpy(watched)
for row in monitor.rows:
    np.testing.assert_allclose(t.columns(row), expected[row.sublayer], rtol=2e-5, atol=1e-7)
assert monitor.traces == (1 if keras.backend.backend() == "jax" else 3)
"""


@pytest.mark.release
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_other_backends(backend, tmp_path):
    run_on(backend, "-c", SCRIPT, HERE, tmp_path / "r.csv", folders=[HERE.parent])
