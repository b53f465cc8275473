"""Training on the grid of eight bits: the grid, the residue, and what straight-through would do."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_addnorm.training import Adam, EightBitAdam, on_eight_bit_grid

STEPS = 6


def rounded(matrix):
    step = np.float32(np.abs(matrix).max()) / np.float32(127)
    return np.round(matrix / step).astype("float32") * step


def small_model():
    keras.utils.set_random_seed(3)
    layers = [
        keras.layers.Embedding(11, 7),
        keras.layers.Dense(5),
        keras.layers.LayerNormalization(),
    ]
    model = keras.Sequential(layers)
    model.build((None, 3))
    return model


def batches():
    rng = np.random.default_rng(0)
    return [(rng.integers(0, 11, (13, 3)), rng.normal(size=(13, 3, 5))) for _ in range(STEPS)]


def values(model):
    return [ops.convert_to_numpy(weight) for weight in model.trainable_variables]


def on_grid(model):
    return [weight.name in ("kernel", "embeddings") for weight in model.trainable_variables]


def trained(optimizer, jit_compile=False):
    model = small_model()
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    for x, y in batches():
        model.train_on_batch(x, y)
    return model


def test_the_grid_is_whole_numbers_of_one_step():
    matrix = np.random.default_rng(0).normal(size=(7, 11)).astype("float32")
    found = ops.convert_to_numpy(on_eight_bit_grid(matrix))
    np.testing.assert_allclose(found, rounded(matrix), rtol=1e-6)
    assert np.abs(found).max() == np.abs(matrix).max()
    assert np.abs(found - matrix).max() <= np.abs(matrix).max() / 254 * 1.001
    again = ops.convert_to_numpy(on_eight_bit_grid(found))
    np.testing.assert_allclose(again, found, rtol=1e-6)
    assert not ops.convert_to_numpy(on_eight_bit_grid(np.zeros((2, 3), "float32"))).any()


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_matrices_lie_on_the_grid_and_others_do_not(jit_compile):
    model = trained(EightBitAdam(0.01), jit_compile)
    assert on_grid(model) == [True, True, False, False, False]
    for weight, is_matrix in zip(values(model), on_grid(model), strict=True):
        whole = weight * 127 / np.abs(weight).max()
        assert (np.abs(whole - whole.round()).max() < 1e-4) == is_matrix


def set_values(model, values):
    for weight, value in zip(model.trainable_variables, values, strict=True):
        weight.assign(value)


def straight_through(model, learning_rate):
    """The forward pass rounds its weights, and gradients pass through to whole ones."""
    optimizer = Adam(learning_rate)
    optimizer.build(model.trainable_variables)
    whole = values(model)
    for x, y in batches():
        set_values(
            model, [rounded(w) if on else w for w, on in zip(whole, on_grid(model), strict=True)]
        )
        gradients = gradients_of(model, x, y)
        set_values(model, whole)
        optimizer.apply(gradients, model.trainable_variables)
        whole = values(model)
    return whole


def gradients_of(model, x, y):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = ops.mean(ops.square(model(x, training=True) - ops.cast(y, "float32")))
    return tape.gradient(loss, [weight.value for weight in model.trainable_variables])


def test_it_is_what_straight_through_gradients_train():
    model, other = small_model(), small_model()
    # On the grid from the beginning: else the first gradient is that of other weights.
    start = [rounded(w) if on else w for w, on in zip(values(model), on_grid(model), strict=True)]
    set_values(model, start)
    set_values(other, start)
    optimizer = EightBitAdam(0.01)
    model.compile(optimizer, "mse", jit_compile=False)
    for x, y in batches():
        model.train_on_batch(x, y)
    expected = straight_through(other, 0.01)
    for n, (found, whole, on) in enumerate(
        zip(values(model), expected, on_grid(model), strict=True)
    ):
        left = ops.convert_to_numpy(optimizer._residues[n]) if on else 0.0
        np.testing.assert_allclose(found + left, whole, rtol=1e-4, atol=1e-6)


def test_what_is_left_over_is_less_than_half_a_step():
    model = small_model()
    optimizer = EightBitAdam(0.01)
    model.compile(optimizer, "mse", jit_compile=False)
    for x, y in batches():
        model.train_on_batch(x, y)
    assert sorted(optimizer._residues) == [0, 1]
    for n, residue in optimizer._residues.items():
        left = np.abs(ops.convert_to_numpy(residue))
        assert 0 < left.max() <= np.abs(values(model)[n]).max() / 254 * 1.01


def test_gradients_are_accumulated_before_a_rounding():
    model = trained(EightBitAdam(0.01, gradient_accumulation_steps=STEPS + 1))
    for found, start in zip(values(model), values(small_model()), strict=True):
        np.testing.assert_array_equal(found, start)


def test_it_is_saved_and_loaded_with_its_residue(tmp_path):
    model = trained(EightBitAdam(0.01, beta_2=0.98))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, EightBitAdam) and loaded.optimizer.beta_2 == 0.98
    for x, y in batches():
        assert model.train_on_batch(x, y) == loaded.train_on_batch(x, y)
    for found, expected in zip(values(loaded), values(model), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_mean_of_weights_is_refused():
    with pytest.raises(ValueError, match="does not lie on the grid"):
        EightBitAdam(0.01, use_ema=True)
