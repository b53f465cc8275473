"""The papers' formulas at one epsilon, their slopes by differences, and tools for any backend."""

import functools
import sys
from pathlib import Path

import keras
import numpy as np
from keras import ops

from keras_addnorm import norms

sys.path.append(str(Path(__file__).parents[1]))  # Where this is a script.
import norm_formulas

B, T, D = 2, 3, 5
EPSILON = 1e-3
NAMES = norms.names()


FORMULAS = {
    name: functools.partial(formula, epsilon=EPSILON)
    for name, formula in norm_formulas.FORMULAS.items()
}
batch_norm = FORMULAS["batch_norm"]


def random(*shape, seed=3):
    return np.random.default_rng(seed).normal(size=shape)


def array(tensor):
    return ops.convert_to_numpy(tensor).astype("float64")


def make(name, dtype="float64", width=D, **fields):
    """A built norm whose weights are moved away from their ones and zeros."""
    layer = norms.get({"name": name, **fields})(epsilon=EPSILON, dtype=dtype, name=name)
    layer.build((None, None, width))
    for index, weight in enumerate(layer.trainable_weights):
        noise = 0.3 * random(*weight.shape, seed=20 + index)
        weight.assign(array(weight) + noise)
    return layer


def weights_of(layer):
    return [array(weight) for weight in layer.trainable_weights]


def slopes(function, arrays, step=1e-5):
    """Gradients of a scalar function of arrays, each entry by a central difference."""
    gradients = [np.zeros_like(a) for a in arrays]
    for values, gradient in zip(arrays, gradients, strict=True):
        for place in np.ndindex(values.shape):
            original = values[place]
            values[place] = original + step
            above = function(*arrays)
            values[place] = original - step
            gradient[place] = (above - function(*arrays)) / (2 * step)
            values[place] = original
    return gradients


def gradients(function, tensors):
    """The same, differentiated by the backend; the result can be differentiated again."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = function(*tensors)
        return tape.gradient(value, tensors)
    if backend == "jax":
        import jax

        return jax.grad(function, argnums=tuple(range(len(tensors))))(*tensors)
    import torch

    tensors = [t if t.requires_grad else t.clone().requires_grad_() for t in tensors]
    return torch.autograd.grad(function(*tensors), tensors, create_graph=True)


def stateless(layer, **arguments):
    """The layer as a function of its input and its weights."""

    def call(x, *weights):
        y, _ = layer.stateless_call(weights, layer.non_trainable_variables, x, **arguments)
        return y

    return call


def check_first_gradients(name):
    """All gradients of a norm are those of the formula, to float64's precision."""
    layer = make(name)
    arrays = [random(B, T, D), *weights_of(layer)]
    upstream = random(B, T, D, seed=4)
    expected = slopes(lambda *a: (upstream * FORMULAS[name](*a)).sum(), arrays)
    call = stateless(layer, training=True)
    tensors = [ops.convert_to_tensor(a) for a in arrays]
    found = gradients(lambda *t: ops.sum(ops.multiply(call(*t), upstream)), tensors)
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(array(value), wanted, rtol=1e-7, atol=1e-8, err_msg=name)


def check_second_gradients(name):
    """A gradient of a gradient equals the difference of gradients, for input and weights."""
    layer = make(name)
    call = stateless(layer, training=True)
    arrays = [random(B, T, D), *weights_of(layer)]
    upstream = random(B, T, D, seed=4)
    directions = [random(*a.shape, seed=30 + i) for i, a in enumerate(arrays)]

    def slope_along(*tensors):
        inner = gradients(lambda *t: ops.sum(ops.multiply(ops.square(call(*t)), upstream)), tensors)
        parts = [ops.sum(ops.multiply(g, d)) for g, d in zip(inner, directions, strict=True)]
        return sum(parts[1:], parts[0])

    tensors = [ops.convert_to_tensor(a) for a in arrays]
    found = gradients(slope_along, tensors)
    expected = slopes(
        lambda *a: float(array(slope_along(*map(ops.convert_to_tensor, a)))), arrays, step=1e-4
    )
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(array(value), wanted, rtol=1e-5, atol=1e-5, err_msg=name)


def check_formula(name, tolerance=1e-12):
    """The output is the formula's, to float64's precision."""
    layer = make(name)
    x = random(B, T, D)
    y = layer(ops.convert_to_tensor(x), training=True)
    expected = FORMULAS[name](x, *weights_of(layer))
    np.testing.assert_allclose(array(y), expected, rtol=tolerance, atol=tolerance, err_msg=name)


def check_half_gradients(name):
    """From numbers of 16 bits, gradients are the formula's, rounded to 16 bits at the end."""
    layer = make(name, "mixed_bfloat16")
    x, upstream = (
        array(ops.cast(ops.convert_to_tensor(random(B, T, D, seed=seed)), "bfloat16"))
        for seed in (3, 4)
    )
    arrays = [x, *weights_of(layer)]
    expected = slopes(lambda *a: (upstream * FORMULAS[name](*a)).sum(), arrays)
    call = stateless(layer, training=True)
    narrow = ops.cast(ops.convert_to_tensor(x), "bfloat16")
    tensors = [narrow, *(ops.convert_to_tensor(a.astype("float32")) for a in arrays[1:])]
    factors = ops.cast(ops.convert_to_tensor(upstream), "bfloat16")
    # Summed in float32: a product with a factor of 16 bits is exact there.
    found = gradients(
        lambda *t: ops.sum(ops.cast(call(*t), "float32") * ops.cast(factors, "float32")), tensors
    )
    assert ops.dtype(found[0]) == "bfloat16"
    for value, wanted in zip(found, expected, strict=True):
        wide = array(ops.cast(value, "float32"))
        np.testing.assert_allclose(wide, wanted, rtol=2**-8, atol=1e-3, err_msg=name)


def check_what_is_kept(name, dtype="float32"):
    """On JAX the residuals of a backward pass can be counted: one array, and one number a row.

    The array has the bits of the input; of one with 16 bits the mean is kept, too.
    """
    import jax

    layer = make(name, dtype, width=7)
    weights = [weight.value for weight in layer.weights]
    x = jax.numpy.ones((11, 7), layer.compute_dtype)
    _, backward = jax.vjp(stateless(layer), x, *weights)
    kept = sorted((leaf.shape, leaf.dtype.name) for leaf in jax.tree.leaves(backward))
    rows = 2 if dtype != "float32" and name == "layer_norm" else 1
    numbers = [((11, 1), "float32")] * rows
    assert kept == [((7,), "float32"), *numbers, ((11, 7), layer.compute_dtype)], kept


def main():
    on_jax = keras.backend.backend() == "jax"
    for name in NAMES:
        # Keras' tanh rounds to float32 on JAX.
        if on_jax and name in ("bhyt", "dynamic_tanh", "seed_norm"):
            check_formula(name, tolerance=1e-6)
            continue
        check_formula(name)
        check_first_gradients(name)
        check_second_gradients(name)
        check_half_gradients(name)
    if on_jax:
        for dtype in ("float32", "mixed_bfloat16"):
            check_what_is_kept("layer_norm", dtype)
            check_what_is_kept("rms_norm", dtype)
    print("checked", *NAMES)


if __name__ == "__main__":
    main()
