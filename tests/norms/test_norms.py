import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from keras import ops
from new_process import run_on
from norms_reference import (
    EPSILON,
    FORMULAS,
    NAMES,
    B,
    D,
    T,
    array,
    check_first_gradients,
    check_formula,
    check_half_gradients,
    check_second_gradients,
    make,
    random,
    weights_of,
)

from keras_addnorm import norms

HERE = pathlib.Path(__file__).parent
BY_POSITION = [name for name in NAMES if name != "batch_norm"]
IDENTIFIERS = [
    *NAMES,
    {"name": "dynamic_tanh", "initial_alpha": 0.8},
    {"name": "derf", "initial_alpha": 0.8},
    {"name": "seed_norm", "num_heads": 5},
    {"name": "taper_norm", "taper_steps": 7, "is_folded": True},
    {"name": "batch_norm", "momentum": 0.9},
    {"name": "rms_norm"},
]


# What they compute


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_formula(name):
    check_formula(name)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_formula(name):
    check_first_gradients(name)


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_have_gradients(name):
    check_second_gradients(name)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_half_precision_are_those_of_the_formula(name):
    check_half_gradients(name)


@pytest.mark.release
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_same_on_other_backends(backend):
    said = run_on(backend, HERE / "norms_reference.py", JAX_ENABLE_X64="1")
    assert said.split() == ["checked", *NAMES]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_equals_the_formula_in_a_graph_of_unknown_sizes(name, jit_compile):
    layer = make(name)
    call = tf.function(
        lambda x: layer(x, training=True),
        input_signature=[tf.TensorSpec((None, None, D), tf.float64)],
        jit_compile=jit_compile,
        autograph=False,
    )
    for rows in (B, B + 1):
        x = random(rows, T, D)
        expected = FORMULAS[name](x, *weights_of(layer))
        np.testing.assert_allclose(call(tf.constant(x)), expected, rtol=1e-11, atol=1e-11)


WEIGHTS = {
    "layer_norm": {"gamma": np.ones(D), "beta": np.zeros(D)},
    "rms_norm": {"scale": np.ones(D)},
    "scale_norm": {"scale": np.sqrt(D)},
    "dynamic_tanh": {"alpha": 0.5, "gamma": np.ones(D), "beta": np.zeros(D)},
    "seed_norm": {"gamma": np.ones(D), "alpha": np.ones(D), "beta": np.zeros(D)},
    "derf": {"alpha": 0.5, "shift": 0.0, "gamma": np.ones(D), "beta": np.zeros(D)},
    "bhyt": {"slope": 2.0, "gamma": np.ones(D)},
    "taper_norm": {"gamma": np.ones(D), "step": 0.0, "mean_size": 0.0, "mean_square": 0.0},
    "std_layer_norm": {"gamma": np.ones(D), "beta": np.zeros(D)},
    "batch_norm": {
        "gamma": np.ones(D),
        "beta": np.zeros(D),
        "moving_mean": np.zeros(D),
        "moving_variance": np.ones(D),
    },
    "none": {},
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_start_as_documented(name):
    layer = norms.get(name)(name="n")
    layer.build((None, None, D))
    found = {weight.path.removeprefix("n/"): array(weight) for weight in layer.weights}
    assert list(found) == list(WEIGHTS[name])
    for path, values in found.items():
        assert values.shape == np.shape(WEIGHTS[name][path])
        np.testing.assert_allclose(values, WEIGHTS[name][path], rtol=1e-6, err_msg=path)


@pytest.mark.parametrize("name", BY_POSITION)
def test_each_position_is_taken_by_itself(name):
    layer, x = make(name), random(B, T, D)
    before = array(layer(x, training=True))
    x[1, 2] *= 7.0
    changed = (array(layer(x, training=True)) != before).any(-1)
    assert changed.sum() == 1
    assert changed[1, 2]


def test_scale_norm_puts_rows_on_a_sphere():
    y = norms.get("scale_norm")(dtype="float64")(random(B, T, D))
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.sqrt(D), rtol=1e-7)


def test_derf_at_zero_at_one_and_its_slope():
    layer = norms.get("derf")(dtype="float64")
    layer.build((None, D))
    x = random(B, D)
    np.testing.assert_array_equal(layer(np.zeros((B, D))), 0.0)
    np.testing.assert_allclose(layer(np.ones((B, D))), 0.5204999, rtol=1e-7)  # erf(0.5)
    np.testing.assert_allclose(array(layer(1e-6 * x)) / (1e-6 * x), 0.5641896, rtol=1e-7)
    np.testing.assert_allclose(layer(-x), -array(layer(x)), rtol=1e-12)  # odd, unless shifted


def test_seed_norm_starts_as_rms_norm_to_the_bit_and_then_sees_its_input():
    x = random(B, T, D).astype("float32")
    start = norms.get("seed_norm")(epsilon=EPSILON)
    np.testing.assert_array_equal(start(x), norms.get("rms_norm")(epsilon=EPSILON)(x))
    layer = make("seed_norm")
    gamma, alpha, beta = weights_of(layer)
    normal = norms.get("rms_norm")(epsilon=EPSILON, dtype="float64")(x)
    seen = np.tanh(x @ beta)[..., None]
    for sign in (1, -1):
        gain = array(layer(sign * x)) / (sign * array(normal))
        np.testing.assert_allclose(gain, gamma + sign * seen * alpha, rtol=1e-6)


def test_seed_norm_in_slices_looks_at_each_by_itself():
    width = 6
    layer, x = make("seed_norm", width=width, num_heads=2), random(B, T, width)
    gamma, alpha, beta = weights_of(layer)
    normal = x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON)
    for own in (slice(0, 3), slice(3, 6)):
        seen = np.tanh(x[..., own] @ beta[own])[..., None]
        expected = (gamma[own] + seen * alpha[own]) * normal[..., own]
        np.testing.assert_allclose(array(layer(x))[..., own], expected, rtol=1e-12)


@pytest.mark.parametrize("num_heads", [0, 2])
def test_seed_norm_needs_slices_that_fit(num_heads):
    with pytest.raises(ValueError, match=rf"Expected num_heads .*Received: .*{num_heads}"):
        norms.get({"name": "seed_norm", "num_heads": num_heads})().build((B, D))


TAPER = {"name": "taper_norm", "calibration_steps": 3, "taper_steps": 4}


def test_taper_norm_is_a_gain_in_the_end_that_was_calibrated_before():
    layer = make("taper_norm", calibration_steps=3, taper_steps=4)
    (gamma,) = weights_of(layer)
    size = square = 0.0
    for step in range(9):
        x = (1 + step) * random(B, T, D, seed=step)
        mask = np.arange(T) < np.array([[T], [T - 1]])
        r = np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON)
        share = 0.5 * (1 + np.cos(np.pi * np.clip((step - 3) / 4, 0, 1)))
        c = size / square if step else 0.0
        expected = share * gamma * x / r + (1 - share) * gamma * c * x
        y = layer(ops.convert_to_tensor(x), padding_mask=ops.convert_to_tensor(mask), training=True)
        np.testing.assert_allclose(array(y), expected, rtol=1e-12, atol=1e-12)
        layer.again(x, training=True)
        layer(x)
        if step < 3:
            sizes = r[..., 0][mask]
            size, square = (
                0.99 * old + 0.01 * new
                for old, new in ((size, sizes.mean()), (square, (sizes**2).mean()))
            )
    assert float(layer.step) == layer.last_step == 7
    # Of one batch alone, no other factor on x comes nearer to x / r.
    alone = make("taper_norm")
    alone(x, training=True)
    nearest = [(np.square(1 - f * float(alone.scale) * r)).sum() for f in (0.99, 1, 1.01)]
    assert nearest[1] == min(nearest)


def test_taper_norm_goes_on_counting_where_it_was_saved(tmp_path):
    def model():
        return keras.Sequential([keras.Input((T, D)), norms.get(TAPER)()])

    first, x = model(), random(B, T, D).astype("float32")
    for _ in range(5):
        first(x, training=True)
    first.save_weights(tmp_path / "m.weights.h5")
    second = model()
    second.load_weights(tmp_path / "m.weights.h5")
    for each in (first, second):
        each(x, training=True)
    assert float(first.layers[0].step) == float(second.layers[0].step) == 6
    np.testing.assert_array_equal(second(x), first(x))


@pytest.mark.parametrize("field", ["calibration_steps", "taper_steps"])
def test_taper_norm_counts_batches(field):
    with pytest.raises(ValueError, match=rf"1 <= {field} <= 1000000. Received: 0"):
        norms.get({"name": "taper_norm", field: 0})()


# Precision


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize("offset", [0.0, 30.0])
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_float32_is_as_good_as_two_passes_make_it(name, jit_compile, offset):
    """Mean far from zero and 1024 rows: output and gradients within 2e-6 of float64's largest."""
    width = 257
    layers = [make(name, dtype, width) for dtype in ("float32", "float64")]
    x = (offset + random(4, 256, width)).astype("float32")
    upstream = random(4, 256, width, seed=4).astype("float32")

    def run(layer, dtype):
        inputs = tf.constant(x, dtype)

        @tf.function(jit_compile=jit_compile, autograph=False)
        def step(inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                y = layer(inputs)
                watched = [inputs, *(weight.value for weight in layer.trainable_weights)]
            return y, *tape.gradient(y, watched, tf.constant(upstream, dtype))

        return [array(value) for value in step(inputs)]

    for found, exact in zip(run(layers[0], "float32"), run(layers[1], "float64"), strict=True):
        assert np.abs(found - exact).max() <= 2e-6 * np.abs(exact).max()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("policy", "offset", "tolerance"),
    [("mixed_float16", 300.0, 2e-3), ("mixed_bfloat16", 30.0, 1.6e-2)],
)
def test_statistics_are_float32_in_half_precision(name, policy, offset, tolerance):
    # Squares of 300 overflow float16; a mean of 30 plus small numbers is lost in bfloat16.
    half = policy.removeprefix("mixed_")
    x = tf.cast(offset + random(B, T, D), half)
    layer = make(name, policy)
    y = layer(x, training=True)
    assert y.dtype == half
    assert all(weight.dtype == "float32" for weight in layer.weights)
    exact = FORMULAS[name](tf.cast(x, "float64").numpy(), *weights_of(layer))
    np.testing.assert_allclose(array(tf.cast(y, "float32")), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_one_number_have_finite_outputs_and_gradients(name):
    layer = make(name, "float32")
    for value in (0.0, 3.0):
        x = tf.fill((B, T, D), value)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        assert np.isfinite(y).all()
        assert np.isfinite(tape.gradient(y, x)).all()


# Parity


@pytest.mark.parametrize(
    ("name", "keras_layer"),
    [
        ("layer_norm", keras.layers.LayerNormalization),
        ("rms_norm", keras.layers.RMSNormalization),
        ("batch_norm", keras.layers.BatchNormalization),
    ],
)
def test_equals_keras_and_loads_its_weights(name, keras_layer, tmp_path):
    theirs, ours = keras_layer(epsilon=EPSILON), norms.get(name)(epsilon=EPSILON)
    x = random(B, T, D).astype("float32")
    models = [keras.Sequential([keras.Input((T, D)), layer]) for layer in (theirs, ours)]
    models[0].set_weights([random(*w.shape, seed=9) ** 2 for w in models[0].get_weights()])
    # Files are keyed by the class in a Sequential model; the layer's own part is what is compared.
    assert [w.path.split("/")[-1] for w in theirs.weights] == [
        w.path.split("/")[-1] for w in ours.weights
    ]
    models[1].set_weights(models[0].get_weights())
    for training in (False, True):
        expected = models[0](x, training=training)
        np.testing.assert_allclose(models[1](x, training=training), expected, rtol=2e-6, atol=2e-6)
    for mine, other in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "torch_layer"),
    [("layer_norm", torch.nn.LayerNorm), ("rms_norm", torch.nn.RMSNorm)],
)
def test_equals_torch(name, torch_layer):
    layer, other = make(name), torch_layer(D, eps=EPSILON, dtype=torch.float64)
    with torch.no_grad():
        for parameter, value in zip(other.parameters(), weights_of(layer), strict=True):
            parameter.copy_(torch.from_numpy(value))
    x = random(B, T, D)
    expected = other(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(layer(x), expected, rtol=1e-12, atol=1e-12)


def test_std_layer_norm_is_the_annotated_transformers():
    layer, x = make("std_layer_norm"), torch.from_numpy(random(B, T, D))
    gamma, beta = map(torch.from_numpy, weights_of(layer))
    mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    expected = gamma * (x - mean) / (deviation + EPSILON) + beta
    np.testing.assert_allclose(layer(x.numpy()), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("direction", [1, -1])
def test_layer_norm_and_std_layer_norm_load_each_others_weights(direction, tmp_path):
    def model(name):
        return keras.Sequential([keras.Input((T, D)), holder(name)])

    first, second = (model(n) for n in ("layer_norm", "std_layer_norm")[::direction])
    first.set_weights([random(D, seed=1), random(D, seed=2)])
    first.save_weights(tmp_path / "m.weights.h5")
    second.load_weights(tmp_path / "m.weights.h5")
    for found, expected in zip(second.get_weights(), first.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)


def holder(norm):
    from keras_addnorm.layers import AddNorm

    class Holder(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="holder")
            self.add_norm = AddNorm(norm=norm)

        def build(self, shape):
            self.add_norm.build(shape)

        def call(self, x):
            return self.add_norm(x, x)

    return Holder()


# Choosing, saving


@pytest.mark.parametrize("identifier", IDENTIFIERS, ids=str)
def test_saved_and_loaded(identifier, tmp_path):
    layer = norms.get(identifier)(epsilon=0.02)
    model = keras.Sequential([keras.Input((T, D)), layer])
    model.set_weights([random(*w.shape, seed=9) ** 2 for w in model.get_weights()])
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert type(loaded.layers[0]) is type(layer)
    assert loaded.layers[0].get_config() == layer.get_config()
    x = random(B, T, D).astype("float32")
    np.testing.assert_array_equal(loaded(x), model(x))


def test_a_dict_sets_the_fields():
    assert norms.get({"name": "layer_norm", "epsilon": 0.2})(epsilon=0.1).epsilon == 0.2
    assert norms.get({"name": "dynamic_tanh", "initial_alpha": 0.8})().initial_alpha == 0.8
    assert norms.get({"name": "batch_norm", "momentum": 0.9})(epsilon=0.1).momentum == 0.9


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_makes_a_new_layer_each_time(name):
    first, second = norms.get(name)(epsilon=1e-6), norms.get(name)(epsilon=1e-6)
    assert isinstance(first, norms.Norm)
    assert first is not second


@pytest.mark.parametrize("name", NAMES)
def test_a_norm_hands_on_the_mask_without_a_warning(name):
    x = keras.layers.Embedding(5, 3, mask_zero=True)(np.array([[4, 0]]))
    y = norms.get(name)(epsilon=1e-6)(x)
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(y), [[True, False]])


@pytest.mark.parametrize("name", ["layernorm", "", None, 3, {}, {"name": "x"}, {"epsilon": 1.0}])
def test_an_unknown_norm_lists_what_there_is(name):
    with pytest.raises(ValueError, match=r"no such norm.*layer_norm, rms_norm.*Received"):
        norms.get(name)


@pytest.mark.parametrize("field", ["momentum", "kwargs", "dtype"])
def test_an_unknown_field_lists_what_there_is(field):
    with pytest.raises(ValueError, match=rf"no such field.*initial_alpha.*Received: \['{field}'\]"):
        norms.get({"name": "dynamic_tanh", field: 0.5})


def test_an_unknown_width_is_an_error():
    with pytest.raises(ValueError, match=r"Expected a known last axis.*\(2, None\)"):
        norms.get("layer_norm")().build((2, None))


def test_one_channel_has_no_unbiased_deviation():
    with pytest.raises(ValueError, match=r"at least 2 channels.*\(2, 1\)"):
        norms.get("std_layer_norm")().build((2, 1))


class HalfNorm(norms.RMSNorm):
    """A norm of one's own."""


def test_a_norm_of_ones_own_is_found_by_its_name(monkeypatch):
    monkeypatch.setattr(norms._TABLE, "_classes", dict(norms._TABLE._classes))
    norms.register("half_norm", HalfNorm)
    assert type(norms.get("half_norm")(epsilon=1e-5)) is HalfNorm
    assert norms.for_side("half_norm", "decoder") == "half_norm"
    with pytest.raises(TypeError, match="has to be a subclass of Norm"):
        norms.register("dense", keras.layers.Dense)
