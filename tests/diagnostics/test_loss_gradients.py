"""Gradients at the stream and at the weights, against finite differences in float64."""

import pathlib

import keras
import numpy as np
import pytest
from filled_models import LABELS, SUBLAYERS, array, batch, tiny_model
from new_process import run_on

from keras_addnorm.diagnostics import loss_gradients, observe
from keras_addnorm.layers.sublayers import named_add_norms
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

HERE = pathlib.Path(__file__).parent


def _loss(model, **offsets):
    with observe(model, **offsets):
        return float(MaskedSparseCategoricalCrossentropy()(LABELS, model(batch())))


@pytest.fixture(scope="module")
def model():
    return tiny_model(dtype="float64", scheme="pre_ln", activation="gelu")


@pytest.fixture(scope="module")
def found(model):
    return loss_gradients(model, batch(), LABELS)


def test_the_loss(model, found):
    assert found.loss == pytest.approx(_loss(model), rel=1e-12)
    assert tuple(found.residuals) == SUBLAYERS
    assert list(found.weights) == [variable.path for variable in model.trainable_variables]


@pytest.mark.parametrize("name", SUBLAYERS)
def test_at_the_stream(model, found, name):
    gradient = found.residuals[name]
    direction = np.random.default_rng(11).normal(size=gradient.shape)
    step = 1e-5
    ahead, behind = (_loss(model, offsets={name: sign * step * direction}) for sign in (1.0, -1.0))
    assert np.sum(gradient * direction) == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


def test_at_the_weights(model, found):
    """Along one direction in which every weight moves in its own way."""
    rng = np.random.default_rng(13)
    values = [array(variable) for variable in model.trainable_variables]
    directions = [rng.normal(size=value.shape) for value in values]
    losses = []
    for step in (1e-6, -1e-6, 0.0):
        for variable, value, direction in zip(
            model.trainable_variables, values, directions, strict=True
        ):
            variable.assign(value + step * direction)
        losses.append(_loss(model))
    slope = sum(
        np.sum(gradient * direction)
        for gradient, direction in zip(found.weights.values(), directions, strict=True)
    )
    assert slope == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-6)


def test_the_loss_of_a_compiled_model():
    model = tiny_model()
    model.compile(loss=MaskedSparseCategoricalCrossentropy(label_smoothing=0.3))
    plain = loss_gradients(model, batch(), LABELS, MaskedSparseCategoricalCrossentropy())
    assert loss_gradients(model, batch(), LABELS).loss != pytest.approx(plain.loss, rel=1e-3)


def test_half_precision_gives_float32():
    found = loss_gradients(tiny_model(dtype="mixed_bfloat16"), batch(), LABELS)
    assert {gradient.dtype for gradient in found.residuals.values()} == {np.dtype("float32")}
    assert all(np.isfinite(gradient).all() for gradient in found.weights.values())


SCRIPT = """
import sys
import keras
import numpy as np
sys.path.insert(0, sys.argv[1])
from filled_models import LABELS, array, batch, tiny_model
from keras_addnorm.diagnostics import inspect, loss_gradients, observe

assert "tensorflow" not in sys.modules or keras.backend.backend() == "tensorflow"
model = tiny_model(scheme="deep_norm")
expected = array(model(batch()))
with observe(model) as observation:
    np.testing.assert_array_equal(array(model(batch())), expected)
found = loss_gradients(model, batch(), LABELS)
arrays = {f"merged {record.name}": array(record.merged) for record in observation}
arrays |= {f"mask {record.name}": array(record.mask) for record in observation}
arrays |= {f"residual {name}": value for name, value in found.residuals.items()}
# The paths of layers count up; the order is the same everywhere.
arrays |= {f"weight {i}": value for i, value in enumerate(found.weights.values())}
for item in inspect(model, (batch(), LABELS)).sublayers:
    numbers = [item.residual_rms, item.branch_rms, item.merged_rms, item.residual_ratio]
    numbers += [item.cosine, item.effect, item.gradient_norm, item.weight_gradient_norm]
    for norm in item.norms:
        numbers += [norm.input_mean, norm.input_variance, norm.output_variance, norm.gain]
    if item.attention is None:
        numbers += [item.dead_units]
    else:
        numbers += [*item.attention.entropy, *item.attention.entropy_share]
        numbers += np.array(item.attention.similarity).ravel().tolist()
    arrays[f"report {item.name}"] = np.array(numbers)

if keras.backend.backend() == "jax":
    import jax

    @jax.jit
    def watched(batch):
        with observe(model) as inner:
            logits = model(batch)
            return logits, [record.merged for record in inner]

    plain = jax.jit(lambda batch: model(batch))(batch())
    only_logits = jax.jit(lambda batch: watched.__wrapped__(batch)[0])
    np.testing.assert_array_equal(only_logits(batch()), plain)
    # XLA fuses otherwise what it also has to return.
    logits, merged = watched(batch())
    np.testing.assert_allclose(logits, plain, atol=1e-5)
    for record, value in zip(observation, merged, strict=True):
        np.testing.assert_allclose(value, array(record.merged), atol=1e-5)
np.savez(sys.argv[2], loss=found.loss, **arrays)
"""


@pytest.mark.release
def test_the_same_on_every_backend(tmp_path):
    found = {}
    for backend in ("tensorflow", "jax", "torch"):
        path = tmp_path / f"{backend}.npz"
        run_on(backend, "-c", SCRIPT, HERE.parent, path)
        found[backend] = dict(np.load(path))
    expected = found.pop("tensorflow")
    for backend, arrays in found.items():
        assert arrays.keys() == expected.keys()
        for name, value in arrays.items():
            np.testing.assert_allclose(
                value, expected[name], rtol=1e-4, atol=1e-5, err_msg=f"{backend}: {name}"
            )


def test_schemes_are_put_back_when_the_loss_fails():
    model = tiny_model()
    before = {name: layer.scheme for name, layer in named_add_norms(model).items()}
    with pytest.raises(ValueError, match="no loss today"):
        loss_gradients(model, batch(), LABELS, _no_loss)
    assert before == {name: layer.scheme for name, layer in named_add_norms(model).items()}


def _no_loss(labels, logits):
    raise ValueError(f"no loss today: {keras.backend.backend()}")
