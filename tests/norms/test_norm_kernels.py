"""What makes Add & Norm fast, without a clock: how often it touches arrays of its size."""

import re

import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.layers import AddNorm

B, T, D = 6, 10, 32
WHOLE = re.compile(rf"f32\[({B},{T}|{B * T}),{D}\]")
INSTRUCTION = re.compile(r"%(\S+) = (\S+) ([\w-]+)\((.*?)\)")
# They name the same memory, hand it on, take one number a row, or (`Fill`) are never run.
NO_TRAFFIC = {"Fill", "Placeholder", "Reshape", "Identity", "IdentityN", "StridedSlice"}
MOVES_UNDER_XLA = {
    ("layer_norm", 1): 7,
    ("layer_norm", 2): 17,
    ("rms_norm", 1): 6,
    ("rms_norm", 2): 14,
}
MOVES_BY_OPERATIONS = {("layer_norm", 1): 15, ("layer_norm", 2): 33}


def program(norm, passes, **options):
    """Add & Norm as a function that TensorFlow compiles: forward, or forward and backward."""
    layer = AddNorm(norm=norm)
    layer.build((B, T, D))

    def forward_and_backward(x, f, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, f)
        weights = [weight.value for weight in layer.trainable_weights]
        return y, tape.gradient(y, [x, *weights], upstream)

    step = layer if passes == 1 else forward_and_backward
    return tf.function(lambda *arrays: step(*arrays), autograph=False, **options)


def arrays(passes):
    return [tf.ones((B, T, D))] * (passes + 1)


def compiled(norm, passes):
    return program(norm, passes, jit_compile=True).experimental_get_compiler_ir(*arrays(passes))(
        stage="optimized_hlo"
    )


def instructions(text):
    """Kind of each instruction, and the shapes that it reads and writes."""
    shapes = {}
    for name, shape, kind, operands in INSTRUCTION.findall(text):
        shapes[name] = shape
        read = [shapes[operand] for operand in re.findall(r"%([\w.-]+)", operands)]
        yield kind, [shape, *read]


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_an_unknown_batch_costs_no_operations_about_shapes(norm):
    layer = AddNorm(norm=norm)
    layer.build((None, T, D))
    spec = tf.TensorSpec((None, T, D))
    traced = tf.function(lambda x, f: layer(x, f), (spec, spec), autograph=False)
    operations = traced.get_concrete_function().graph.get_operations()
    assert not {"Shape", "StridedSlice", "Pack"} & {operation.type for operation in operations}
    x, f = (np.random.default_rng(seed).normal(size=(B, T, D)) for seed in (1, 2))
    np.testing.assert_allclose(traced(x, f), layer(x, f), atol=1e-6)


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_arrays_of_unknown_sizes_are_not_copied_for_sums(norm):
    layer = AddNorm(norm=norm)
    layer.build((None, None, D))

    def gradients(x, f):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, f)
        return tape.gradient(y, [x, *(weight.value for weight in layer.trainable_weights)])

    spec = tf.TensorSpec((None, None, D))
    traced = tf.function(gradients, (spec, spec), autograph=False)
    operations = traced.get_concrete_function().graph.get_operations()
    sums = [o for o in operations if o.type == "MatMul"]
    assert len(sums) == {"layer_norm": 4, "rms_norm": 2}[norm]
    assert not [o for o in operations if o.type == "Transpose" and o.inputs[0].shape[-1] == D]
    x, f = (np.random.default_rng(seed).normal(size=(B, T, D)).astype("f") for seed in (1, 2))
    for one, other in zip(traced(x, f), gradients(tf.constant(x), tf.constant(f)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(("norm", "passes"), MOVES_UNDER_XLA)
def test_the_walks_over_memory_of_xlas_program(norm, passes):
    text = compiled(norm, passes)
    moves = sum(
        WHOLE.match(shape) is not None
        for kind, shapes in instructions(text[text.index("ENTRY") :])
        if kind not in ("parameter", "bitcast", "tuple")
        for shape in shapes
    )
    assert moves == MOVES_UNDER_XLA[norm, passes]


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_xla_sums_arrays_as_products(norm):
    sums = {
        kind
        for kind, shapes in instructions(compiled(norm, 2))
        if kind in ("reduce", "reduce-window", "dot") and any(map(WHOLE.match, shapes))
    }
    assert sums == {"dot"}


@pytest.mark.parametrize(("norm", "passes"), MOVES_BY_OPERATIONS)
def test_the_walks_over_memory_of_single_operations(norm, passes):
    graph = program(norm, passes).get_concrete_function(*arrays(passes)).graph
    moves = sum(
        tensor.shape.num_elements() == B * T * D
        for operation in graph.get_operations()
        if operation.type not in NO_TRAFFIC
        for tensor in (*operation.inputs, *operation.outputs)
    )
    assert moves == MOVES_BY_OPERATIONS[norm, passes]
