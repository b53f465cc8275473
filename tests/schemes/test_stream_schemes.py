"""Schemes of several streams or with a memory: one test a property, over a table of schemes.

What a whole model adds (layers, caches, files) is in `tests/models/test_stream_models.py`.
"""

import dataclasses
import functools
import itertools
import pathlib
import unittest.mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from new_process import run_on
from streams_reference import (
    CASES,
    KINDS,
    ONE_STREAM,
    SUBLAYERS,
    B,
    D,
    Stack,
    T,
    array,
    giving,
    gradients,
    norm,
    random,
)

from keras_addnorm import schemes
from keras_addnorm.layers import AddNorm
from keras_addnorm.schemes import LearnedArray, ResidualPlan, StackPosition, StreamState
from keras_addnorm.schemes.mhc import sinkhorn

HERE = pathlib.Path(__file__).parent
X = random(B, T, D)
LAST = StackPosition(3, 2, "decoder", 1).at("feed_forward", SUBLAYERS)
WITH_COEFFICIENTS = [case for case in CASES if not case.startswith(("resi", "b2t"))]
# What the model computes at the start, how exactly, and for which norm; the others are Post-LN's.
START_OF_PRE_LN = {
    "hyper_connections": 0.0,
    "hyper_connections static": 0.0,
    "mhc_lite": 1e-6,
    "mhc": 1e-6,
    "attention_residuals": 1e-4,
    "attention_residuals of 2": 1e-4,
    "attention_residuals of 4": 1e-4,
    "residual_scalars": 0.0,
    "dense_former": 0.0,
    "dense_former of every second": 0.0,
    "frac_connections": 0.0,
    "frac_connections dynamic": 0.0,
    "krom_hc": 1e-6,
}


def made(case, **overrides):
    return {**CASES[case], **overrides}


@functools.cache
def noisy(case):
    """A stack of float64 with weights of its own, for tests that only read it."""
    return Stack(CASES[case], noise=0.3)


@functools.cache
def traced(case):
    stack, spec = Stack(CASES[case], "float32"), tf.TensorSpec((B, T, D))
    return tf.function(stack, (spec,), autograph=False).get_concrete_function()


def test_no_stream_scheme_is_left_out():
    found = {name for name in schemes.names() if _has_streams(name)}
    assert found == {scheme["name"] for scheme in CASES.values()}


def _has_streams(name):
    return isinstance(schemes.get(name), schemes.StreamScheme)


def dtype_of(tensor):
    return keras.backend.standardize_dtype(tensor.dtype)


# Formula, gradients, start


@pytest.mark.parametrize("case", CASES)
def test_a_stack_computes_the_formula(case):
    stack = noisy(case)
    np.testing.assert_allclose(array(stack(X)), stack.by_formula(X), rtol=1e-10, atol=1e-12)


@pytest.mark.fast_cases(6)
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_central_differences(case):
    stack = Stack(CASES[case], noise=0.3)
    _, found = gradients(stack, X)
    rng = np.random.default_rng(7)
    starts = [array(weight) for weight in stack.weights]
    directions = [rng.normal(size=start.shape) for start in starts]
    values = []
    for step in (1e-5, -1e-5):
        for weight, start, direction in zip(stack.weights, starts, directions, strict=True):
            weight.assign(start + step * direction)
        weighted = stack.by_formula(X) * np.cos(np.arange(X.size)).reshape(X.shape)
        values.append(weighted.sum())
    slope = sum((g * d).sum() for g, d in zip(found, directions, strict=True))
    np.testing.assert_allclose(slope, (values[0] - values[1]) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("case", START_OF_PRE_LN)
def test_the_start_is_pre_ln(case):
    scheme = made(case, num_streams=4) if "num_streams" in CASES[case] else CASES[case]
    dtype = "float64" if START_OF_PRE_LN[case] else "float32"
    found, expected = (array(Stack(each, dtype)(X)) for each in (scheme, "pre_ln"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=START_OF_PRE_LN[case])


@pytest.mark.parametrize(
    "case", ["hyper_connections", "hyper_connections static", "mhc", "mhc_lite", "krom_hc"]
)
def test_streams_differ_after_one_step(case):
    stack = Stack(CASES[case])
    _, found = gradients(stack, X)
    for weight, gradient in zip(stack.weights, found, strict=True):
        weight.assign(array(weight) - 0.1 * gradient)
    streams = np.stack([array(x) for x in stack.states(X)[-1].streams])
    assert streams.std(axis=0).min() > 1e-9 and streams.std(axis=0).max() > 1e-4


# Precision, compilation, backends, files


@pytest.mark.fast_cases(6)
@pytest.mark.parametrize(
    ("case", "dtype"),
    list(zip(CASES, itertools.cycle(("mixed_float16", "mixed_bfloat16")), strict=False)),
)
def test_coefficients_stay_float32_in_16_bits(case, dtype):
    stack = Stack(CASES[case], dtype, noise=0.3)
    states = stack.states(X)
    tensors = [x for state in states for x in (*state.streams, *state.memory)]
    assert set(map(dtype_of, tensors)) == {dtype.removeprefix("mixed_")}
    for add_norm, state in zip(stack.add_norms, states[:-1], strict=True):
        parts = add_norm._parts(None, None)
        for name, value in add_norm.scheme.coefficients(state, parts).items():
            assert dtype_of(value) == "float32", name
    assert set(map(dtype_of, stack.weights)) == {"float32"}
    np.testing.assert_allclose(array(stack(X)), noisy(case).by_formula(X), atol=0.15)


@pytest.mark.slow
def test_all_under_xla_and_in_a_saved_model(tmp_path):
    """One layer of each scheme, in one program, as a compilation costs seconds."""
    stacks = {
        case: Stack(scheme, "float32", noise=0.3, layers=1)
        for case, scheme in (KINDS | ONE_STREAM).items()
    }
    expected = {case: array(stack(X)) for case, stack in stacks.items()}

    def run(x):
        return {case: stack(x) for case, stack in stacks.items()}

    x = tf.constant(X, "float32")
    compiled = tf.function(run, jit_compile=True)(x)
    module = tf.Module()
    module.parts = [stack.parts for stack in stacks.values()]
    module.run = tf.function(run, input_signature=[tf.TensorSpec((None, None, D))])
    tf.saved_model.save(module, tmp_path / "all")
    reloaded = tf.saved_model.load(tmp_path / "all")
    for found in (compiled, reloaded.run(x)):
        for case, value in expected.items():
            np.testing.assert_allclose(found[case], value, rtol=1e-4, atol=1e-5, err_msg=case)


@pytest.mark.slow
@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.release), "torch"])
def test_numbers_and_gradients_are_those_of_tensorflow(backend, tmp_path):
    path = tmp_path / "found.npz"
    run_on(backend, "-W", "ignore", HERE / "streams_on_backend.py", path)
    found = dict(np.load(path))
    for case, scheme in (KINDS | ONE_STREAM).items():
        value, of_weights = gradients(Stack(scheme, "float32", noise=0.3, layers=1), X)
        for name, expected in {"value": value, **dict(enumerate(of_weights))}.items():
            np.testing.assert_allclose(
                found[f"{case}/{name}"], expected, rtol=1e-3, atol=1e-4, err_msg=case
            )


@pytest.mark.parametrize("case", CASES)
def test_a_scheme_is_saved_with_its_fields(case):
    scheme = schemes.get(CASES[case])
    assert schemes.get(schemes.serialize(scheme)) == scheme
    add_norm = Stack(scheme).add_norms[-1]
    assert AddNorm.from_config(add_norm.get_config())._plan == add_norm._plan


# Dropout, one Add & Norm alone


@pytest.mark.parametrize("case", ["attention_residuals", "mhc", "resi_dual", "dense_former"])
def test_dropped_branches_are_finite(case):
    """A source of attention residuals may be all zeros."""
    stack = Stack(CASES[case], "float32", noise=0.3, dropout=0.5, drop_path=0.5)
    for _ in range(3):
        assert np.isfinite(array(stack(X, training=True))).all()


@pytest.mark.parametrize("case", CASES)
def test_add_norm_alone_is_a_stack_of_one_sublayer(case):
    scheme = schemes.get(CASES[case])
    first = StackPosition(0, 1, "decoder").at("feed_forward", ("feed_forward",))
    add_norm = AddNorm(scheme, position=first)
    x, f = X.astype("float32"), random(B, T, D, seed=5).astype("float32")
    add_norm.build(x.shape)
    state = add_norm(scheme.open(x), giving(f))
    alone = array(add_norm(x, giving(f)))
    np.testing.assert_array_equal(alone, array(scheme.collapse(state)))
    if case in START_OF_PRE_LN:
        np.testing.assert_allclose(alone, x + f, atol=1e-5)
    np.testing.assert_array_equal(
        array(add_norm.branch_input(x)), array(add_norm.branch_input(scheme.open(x)))
    )


@dataclasses.dataclass(frozen=True)
class Prepared(schemes.StreamScheme):
    """`h = x + p` and `x = p + f`, with p = LN(y): what both need is computed in `prepare`."""

    needs_final_norm = False

    def plan(self, position):
        return ResidualPlan(norm_slots=("pre_norm",))

    def open(self, x):
        return StreamState((x, 3 * x))

    def prepare(self, state, parts):
        x, y = state.streams
        return StreamState((x, y), (parts.pre_norm(y),))

    def read(self, state, parts):
        return state.streams[0] + state.memory[0]

    def write(self, state, branch, parts):
        return StreamState((state.memory[0] + branch, state.streams[0]))

    def collapse(self, state):
        return state.streams[0]


def test_a_state_is_prepared_once_a_sublayer():
    add_norms = [AddNorm(Prepared(), dtype="float64") for _ in range(2)]
    state, x, y = Prepared().open(ops.convert_to_tensor(X)), X, 3 * X
    for add_norm in add_norms:
        add_norm.build(X.shape)
        add_norm.pre_norm.call = unittest.mock.Mock(wraps=add_norm.pre_norm.call)
        prepared = norm(add_norm.pre_norm, y)
        h, after = add_norm.read(state)
        np.testing.assert_allclose(array(h), x + prepared, rtol=1e-12)
        after = add_norm.write(after, ops.tanh(h))
        assert add_norm.pre_norm.call.call_count == 1
        x, y = prepared + np.tanh(x + prepared), x
        np.testing.assert_allclose(array(after.streams[0]), x, rtol=1e-12)
        # The users' calls prepare for themselves.
        for found, expected in zip(add_norm(state, ops.tanh).streams, after.streams, strict=True):
            np.testing.assert_array_equal(array(found), array(expected))
        state = after


def test_halves_need_a_built_add_norm():
    with pytest.raises(ValueError, match=r"'alone' has no parts yet.*Say add_norm.build"):
        AddNorm("pre_ln", name="alone").read(X)


# Oracles of single schemes


def test_resi_dual_is_a_post_ln_stack_beside_a_sum():
    stack, post_ln = Stack("resi_dual", noise=0.3), Stack("post_ln", noise=0.3)
    states, expected = stack.states(X), post_ln.states(X)
    for state, y in zip(states[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(array(state.streams[0]), array(y))
    p, d = states[-1].streams
    branches = [np.tanh(array(y) @ w) for y, w in zip(expected[:-1], stack.kernels, strict=True)]
    np.testing.assert_allclose(array(d) - X, sum(branches), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(array(stack(X)), array(p) + array(stack.final_norm(d)))


def test_b2t_without_branches_and_without_its_skip():
    stack, post_ln = Stack("b2t"), Stack("post_ln")
    zeros = ops.zeros_like(X)
    state = stack.scheme.open(ops.cast(X, "float64"))
    for add_norm in stack.add_norms[:3]:
        state = add_norm(state, giving(zeros))
    norm = post_ln.final_norm
    # One norm a sublayer, and the layer's input once more in front of the last.
    expected = norm(norm(norm(X)) + X)
    np.testing.assert_allclose(array(state.streams[0]), array(expected), rtol=1e-12, atol=1e-12)
    assert state.memory == ()

    state, y = stack.scheme.open(ops.cast(X, "float64")), X
    for add_norm, other in zip(stack.add_norms[:3], post_ln.add_norms[:3], strict=True):
        state, y = (each(x, giving(zeros + 0.5)) for each, x in ((add_norm, state), (other, y)))
        state = state._replace(memory=tuple(ops.zeros_like(x) for x in state.memory))
    np.testing.assert_array_equal(array(state.streams[0]), array(y))


def test_b2t_of_one_sublayer_has_its_input_twice():
    place = StackPosition(0, 1, "decoder").at("feed_forward", ("feed_forward",))
    add_norm, post_ln = (
        AddNorm(name, position=place, dtype="float64") for name in ("b2t", "post_ln")
    )
    f = random(B, T, D, seed=5)
    for each in (add_norm, post_ln):
        each.build(X.shape)
    found, expected = (array(each(x, f)) for each, x in ((add_norm, X), (post_ln, 2 * X)))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_b2t_starts_all_kernels_smaller():
    plan = schemes.get("b2t").plan(LAST)
    assert plan.init_gain == plan.query_key_init_gain == pytest.approx(2**-0.5)


def test_one_hyper_connection_is_pre_ln():
    found = Stack({"name": "hyper_connections", "num_streams": 1}, "float32")(X)
    np.testing.assert_array_equal(array(found), array(Stack("pre_ln", "float32")(X)))


def test_hyper_connections_do_not_know_the_order_of_streams():
    one, other = (Stack(CASES["hyper_connections"], noise=0.3) for _ in range(2))
    order = [2, 0, 3, 1]
    for add_norm in other.add_norms:
        add_norm.read_weights.assign(array(add_norm.read_weights)[order])
        add_norm.write_weights.assign(array(add_norm.write_weights)[order])
        add_norm.mixing_weights.assign(array(add_norm.mixing_weights)[order][:, order])
        projection = array(add_norm.mixing_projection)
        add_norm.mixing_projection.assign(projection[:, order])
    np.testing.assert_allclose(array(one(X)), array(other(X)), rtol=1e-10, atol=1e-12)


def test_hyper_connections_to_one_stream_leave_the_others():
    stack = Stack(made("hyper_connections static", num_streams=3))
    for add_norm in stack.add_norms:
        add_norm.read_weights.assign([0.0, 1.0, 0.0])
        add_norm.write_weights.assign([0.0, 1.0, 0.0])
    streams = [array(x) for x in stack.states(X)[-1].streams]
    np.testing.assert_array_equal(streams[0], X)
    np.testing.assert_array_equal(streams[2], X)
    assert np.abs(streams[1] - X).min() > 1e-6


@pytest.mark.parametrize("scheme", ["mhc", "mhc_lite", "krom_hc"])
def test_mixing_is_doubly_stochastic_and_reads_and_writes_are_bounded(scheme):
    stack = Stack({"name": scheme, "off_diagonal": -1.0}, "float32", noise=0.5)
    product = np.eye(4)
    for add_norm, state in zip(stack.add_norms, stack.states(X)[:-1], strict=True):
        found = add_norm.scheme.coefficients(state, add_norm._parts(None, None))
        read, write, mixing = (array(found[name]) for name in ("read", "write", "mixing"))
        assert mixing.shape == (B, T, 4, 4) and read.shape == write.shape == (B, T, 4)
        np.testing.assert_allclose(mixing.sum(-1), 1, atol=1e-6)
        np.testing.assert_allclose(mixing.sum(-2), 1, atol=1e-3 if scheme == "mhc" else 1e-6)
        assert np.linalg.norm(mixing, 2, axis=(-2, -1)).max() < 1 + 1e-3
        assert read.min() > 0 and read.max() < 1 and write.min() > 0 and write.max() < 2
        product = mixing @ product
    np.testing.assert_allclose(product.sum(-1), 1, atol=1e-5)


def test_sinkhorn_on_matrices_that_are_known():
    # [[a, b], [c, d]] -> p = 1 / (1 + sqrt(b c / (a d))) on the diagonal
    np.testing.assert_allclose(
        array(sinkhorn(ops.convert_to_tensor([[0.0, 1.0], [0.0, 0.0]]), 20)),
        [[0.3775407, 0.6224593], [0.6224593, 0.3775407]],
        atol=1e-6,
    )
    mild = ops.convert_to_tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 0.5], [1.0, 1.0, 3.0]], "float64")
    errors = [np.abs(array(sinkhorn(mild, i)).sum(0) - 1).max() for i in (1, 5, 20)]
    assert errors[0] > 1e-2 > errors[1] > 1e-5 > errors[2]
    np.testing.assert_array_equal(array(sinkhorn(ops.convert_to_tensor([[[7.0]]]), 3)), [[[1.0]]])
    # A row that is nothing beside the other, in float32.
    wild = sinkhorn(ops.convert_to_tensor([[0.0, 0.0], [-200.0, -200.0]]), 20)
    np.testing.assert_allclose(array(wild), 0.5, atol=1e-6)


@pytest.mark.parametrize("scheme", ["mhc", "mhc_lite", "krom_hc"])
def test_one_stream_has_nothing_to_mix(scheme):
    found = Stack({"name": scheme, "num_streams": 1}, "float32")(X)
    np.testing.assert_allclose(array(found), array(Stack("pre_ln", "float32")(X)), atol=1e-6)


@pytest.mark.fast_cases(6)
@pytest.mark.parametrize("case", CASES)
def test_sums_over_the_width_are_products(case):
    """XLA computes what a plain sum reads anew in each loop that needs it (`basics/tensors.py`)."""
    sums = [
        operation.name
        for operation in traced(case).graph.get_operations()
        if operation.type in ("Mean", "Sum") and operation.inputs[0].shape.rank == 3
    ]
    assert not sums


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.startswith(("hyper", "frac", "mhc", "krom"))]
)
def test_streams_are_mixed_by_products(case):
    """Otherwise XLA computes each stream anew wherever it is read, and so on down the stack."""
    function = traced(case)
    left, seen = [function.graph.outputs[0].op], set()
    while left:
        operation = left.pop()
        if operation.name not in seen and "MatMul" not in operation.type:
            seen.add(operation.name)
            left += [tensor.op for tensor in operation.inputs]
    assert function.inputs[0].op.name not in seen


def test_mhc_lite_takes_any_logits():
    scheme = schemes.get("mhc_lite")
    matrix = array(scheme._matrix(ops.cast(30 * random(5, 24), "float64")))
    np.testing.assert_allclose(matrix.sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(matrix.sum(-2), 1, atol=1e-12)
    # A single permutation, the second in the order of `itertools`: the last two change places.
    one = array(scheme._matrix(ops.cast(1000 * np.eye(24)[1], "float64")))
    np.testing.assert_array_equal(one, np.eye(4)[[0, 1, 3, 2]])
    two = array(
        schemes.get({"name": "mhc_lite", "num_streams": 2})._matrix(
            ops.convert_to_tensor([0.4, -0.3], "float64")
        )
    )
    share = 1 / (1 + np.exp(-0.7))
    np.testing.assert_allclose(two, [[share, 1 - share], [1 - share, share]], rtol=1e-12)


def test_krom_hc_takes_any_logits_and_any_power_of_two():
    scheme = schemes.get({"name": "krom_hc", "num_streams": 16})
    matrix = array(scheme._matrix(ops.cast(30 * random(5, 8), "float64")))
    np.testing.assert_allclose(matrix.sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(matrix.sum(-2), 1, atol=1e-12)
    # The first factor alone changes places: half of the streams with the other half.
    moved = array(scheme._matrix(ops.cast([-99.0, 99.0, *(99.0, -99.0) * 3], "float64")))
    np.testing.assert_allclose(moved, np.roll(np.eye(16), 8, axis=0), atol=1e-12)
    assert starts_of({"name": "krom_hc"})["mixing_bias"].tolist() == [0.0, -8.0] * 2


def test_siamese_norm_norms_a_stream_once_a_sublayer_and_reads_what_it_has_made():
    stack = Stack("siamese_norm", noise=0.3)
    add_norm, state = stack.add_norms[4], stack.states(X)[4]
    x, y = map(array, state.streams)
    add_norm.stream_norm.call = unittest.mock.Mock(wraps=add_norm.stream_norm.call)
    h, prepared = add_norm.read(state)
    after = add_norm.write(prepared, ops.zeros_like(h))
    assert add_norm.stream_norm.call.call_count == 1
    np.testing.assert_allclose(array(after.streams[0]), norm(add_norm.stream_norm, x), rtol=1e-12)
    np.testing.assert_array_equal(array(after.streams[1]), y)


def test_attention_residuals_weigh_values_by_normed_keys():
    stack = Stack("attention_residuals", noise=0.3)
    assert not stack.add_norms[0]._plan.arrays
    place = 3
    add_norm, state = stack.add_norms[place], stack.states(X)[place]

    def weights(state):
        return array(add_norm.scheme.coefficients(state, add_norm._parts(None, None))["depth"])

    found = weights(state)
    assert found.shape == (B, T, 4)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-12)
    longer = state._replace(memory=(state.memory[0], 50 * state.memory[1], *state.memory[2:]))
    np.testing.assert_allclose(weights(longer), found, rtol=1e-3)
    add_norm.query.assign(0 * array(add_norm.query))
    expected = array(add_norm.pre_norm(sum(map(array, longer.memory)) / 4))
    np.testing.assert_allclose(array(add_norm.branch_input(longer)), expected, rtol=1e-10)


@pytest.mark.parametrize("case", ["attention_residuals", "attention_residuals of 2"])
def test_queries_that_start_at_zero_have_gradients(case):
    stack = Stack(CASES[case])
    found = gradients(stack, X)[1]
    queries = [g for g, weight in zip(found, stack.weights, strict=True) if weight.name == "query"]
    assert len(queries) == 6 and min(np.abs(query).max() for query in queries) > 1e-6


def test_dense_former_can_start_again_from_the_embedding():
    stack = Stack("dense_former")
    stack.add_norms[2].depth_weights.assign([1.0, 0.0])
    np.testing.assert_array_equal(array(stack.states(X)[3].streams[0]), X)
    places = [StackPosition(6, 6, "encoder", i).at("feed_forward", SUBLAYERS) for i in range(6)]
    sparse = {"name": "dense_former", "dilation": 2, "period": 3}
    for scheme, counts in (("dense_former", [2, 3, 4, 5, 6, 7]), (sparse, [0, 0, 2, 0, 0, 4])):
        plans = [schemes.get(scheme).plan(place) for place in places]
        assert [sum(int(np.prod(a.shape)) for a in plan.arrays) for plan in plans] == counts


@pytest.mark.parametrize(("dilation", "kept"), [(1, 2), (2, 1)])
def test_a_deep_layer_of_dense_former_alone_has_its_last_weights(dilation, kept):
    scheme = schemes.get({"name": "dense_former", "dilation": dilation})
    place = StackPosition(5, 5, "encoder", 4).at("feed_forward", ("feed_forward",))
    add_norm = AddNorm(scheme, position=place, dtype="float64")
    add_norm.build(X.shape)
    add_norm.depth_weights.assign(random(*add_norm.depth_weights.shape))
    weights = array(add_norm.depth_weights)[-kept:]
    f = random(B, T, D, seed=5)
    expected = sum(w * x for w, x in zip(weights, (X, X + f)[-kept:], strict=True))
    np.testing.assert_allclose(array(add_norm(X, giving(f))), expected, rtol=1e-10)
    found = scheme.coefficients(scheme.open(X), add_norm._parts(None, None))["depth"]
    np.testing.assert_array_equal(array(found), weights)


def test_dlcl_starts_with_means_and_may_read_one_layer_alone():
    stack = Stack("dlcl")
    last = stack.add_norms[2]
    np.testing.assert_allclose(array(last.depth_weights), 1 / 2)
    np.testing.assert_allclose(array(stack.add_norms[5].depth_weights), 1 / 3)
    first = norm(last.post_norm, array(stack.states(X)[2].streams[0]) + branch_of(stack, 2))
    np.testing.assert_allclose(array(stack.states(X)[3].streams[0]), (X + first) / 2, rtol=1e-12)
    last.depth_weights.assign([1.0, 0.0])
    np.testing.assert_array_equal(array(stack.states(X)[3].streams[0]), X)


def branch_of(stack, place):
    """What a sublayer of a stack gives."""
    h = array(stack.add_norms[place].branch_input(stack.states(X)[place]))
    return np.tanh(h @ stack.kernels[place])


@pytest.mark.parametrize(("depth", "count", "size"), [(6, 2, 2), (6, 3, 3), (16, 2, 4), (11, 3, 5)])
def test_attention_residuals_have_eight_blocks_unless_told_otherwise(depth, count, size):
    scheme, sublayers = schemes.get("attention_residuals"), SUBLAYERS[-count:]
    layers = [StackPosition(depth, depth, "decoder", index) for index in range(depth)]
    places = [layer.at(name, sublayers) for layer in layers for name in sublayers]
    ends = [scheme.plan(place).settings.ends_block for place in places]
    assert ends == [(index + 1) % size == 0 for index in range(depth * count)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_blocks_of_any_size_start_as_pre_ln_but_for_the_norms_epsilon(size):
    found, expected = (
        Stack(scheme, epsilon=1e-30)
        for scheme in ({"name": "attention_residuals", "block_size": size}, "pre_ln")
    )
    for stack in (found, expected):
        stack.final_norm.epsilon = 1e-30
    np.testing.assert_allclose(array(found(X)), array(expected(X)), rtol=0, atol=1e-6)


def starts_of(scheme, place=LAST):
    """The initial values of a plan's arrays, as arrays of their shapes for D = 8."""
    return {
        each.name: np.broadcast_to(np.asarray(each.initial_value, "float64"), each.sizes(D))
        for each in schemes.get(scheme).plan(place).arrays
    }


def assert_starts(scheme, expected, place=LAST):
    found = starts_of(scheme, place)
    assert set(found) == set(expected)
    for name, values in expected.items():
        wanted = np.broadcast_to(values, found[name].shape)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6, err_msg=name)


DYNAMIC = {
    **dict.fromkeys(("read_projection", "mixing_projection", "write_projection"), 0.0),
    **dict.fromkeys(("read_and_mixing_scale", "write_scale"), 0.01),
}


@pytest.mark.parametrize(("layer", "sublayer"), [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2)])
def test_hyper_connections_start_with_one_stream_after_the_other(layer, sublayer):
    place = StackPosition(3, 2, "decoder", layer).at(SUBLAYERS[sublayer], SUBLAYERS)
    static = {
        "read_weights": np.eye(4)[(3 * layer + sublayer) % 4],
        "mixing_weights": np.eye(4),
        "write_weights": 1.0,
    }
    assert_starts("hyper_connections", static | DYNAMIC, place)
    assert_starts({"name": "hyper_connections", "dynamic": False}, static, place)


def test_frac_connections_start_with_each_part_by_itself():
    static = {"read_weights": np.eye(4), "mixing_weights": np.eye(4), "write_weights": 1.0}
    scheme = {"name": "frac_connections", "num_streams": 4}
    assert_starts(scheme, static)
    assert_starts({**scheme, "dynamic": True}, static | DYNAMIC)


@pytest.mark.parametrize("off_diagonal", [None, -3.0])
@pytest.mark.parametrize("start", ["mean", "one_hot"])
@pytest.mark.parametrize("scheme", ["mhc", "mhc_lite"])
def test_manifold_schemes_start_near_the_identity(scheme, start, off_diagonal):
    fields = {} if off_diagonal is None else {"off_diagonal": off_diagonal}
    identity = np.eye(4).ravel() if scheme == "mhc" else np.eye(24)[0]
    # The last sublayer is the sixth of its stack: 5 mod 4.
    one_hot = [-1.0, 1.0, -1.0, -1.0]
    expected = {
        **dict.fromkeys(("read_projection", "mixing_projection", "write_projection"), 0.0),
        "mixing_bias": np.where(identity, 0.0, -8.0 if off_diagonal is None else off_diagonal),
        "read_bias": -np.log(3) if start == "mean" else one_hot,
        "write_bias": [-1.0, -1 / 3, 1 / 3, 1.0] if start == "mean" else one_hot,
        "scales": 0.01,
    }
    assert_starts({"name": scheme, "start": start, **fields}, expected)


def test_manifold_schemes_read_the_mean_and_write_with_a_mean_of_one():
    stack = Stack("mhc_lite")
    add_norm, state = stack.add_norms[0], stack.states(X)[0]
    found = add_norm.scheme.coefficients(state, add_norm._parts(None, None))
    shape = (B, T, 4)
    np.testing.assert_allclose(array(found["read"]), np.full(shape, 0.25), rtol=1e-6)
    writes = np.broadcast_to([0.5379, 0.8349, 1.1651, 1.4621], shape)
    np.testing.assert_allclose(array(found["write"]), writes, atol=5e-5)
    np.testing.assert_allclose(array(found["write"]).mean(-1), 1, rtol=1e-6)


def test_residual_scalars_decrease_with_depth():
    scheme = schemes.get(CASES["residual_scalars decreasing"])
    places = [StackPosition(3, 3, "encoder", i).at("self_attention", SUBLAYERS) for i in range(3)]
    starts = [[a.initial_value for a in scheme.plan(place).arrays] for place in places]
    np.testing.assert_allclose(starts, [[1.15, 0.2], [1.1, 0.125], [1.05, 0.05]])
    assert scheme.plan(LAST).arrays == ()


@pytest.mark.parametrize(
    ("scheme", "count"),
    [
        ({"name": "hyper_connections", "dynamic": False}, 24),
        ("hyper_connections", 3098),
        ("mhc", 49179),
        ("mhc_lite", 65571),
        ("krom_hc", 24591),
        ({"name": "frac_connections", "num_streams": 4}, 36),
        ({"name": "frac_connections", "num_streams": 4, "dynamic": True}, 36 + 128 * 9 + 2),
        ("attention_residuals", 512),
        ("residual_scalars", 0),
        ("resi_dual", 0),
        ("b2t", 0),
    ],
)
def test_numbers_of_weights_a_sublayer(scheme, count):
    plan = schemes.get(scheme).plan(LAST)
    assert sum(int(np.prod(each.sizes(512))) for each in plan.arrays) == count


# Places and refusals


@pytest.mark.parametrize("sublayers", [SUBLAYERS, ("self_attention", "feed_forward")])
def test_places_among_the_sublayers_of_a_stack(sublayers):
    layer = StackPosition(0, 3, "decoder", 2)
    places = [layer.at(name, sublayers) for name in sublayers]
    count = len(sublayers)
    assert [place.sublayer_index for place in places] == [2 * count + i for i in range(count)]
    assert [place.num_sublayers for place in places] == [3 * count] * count
    assert [place.is_first_in_layer for place in places] == [True] + [False] * (count - 1)
    assert [place.is_last_in_layer for place in places] == [False] * (count - 1) + [True]
    assert StackPosition.get(places[0].to_dict()) == places[0]
    with pytest.raises(ValueError, match=r"Expected a position with sublayer.*sublayers=\(\)"):
        _ = layer.at("feed_forward").sublayer_index


def test_a_state_at_the_wrong_place_is_an_error():
    x = X.astype("float32")
    one_stream, many = AddNorm("pre_ln"), AddNorm("mhc_lite")
    with pytest.raises(ValueError, match=r"state of several streams.*say layer.build"):
        AddNorm("mhc_lite")(StreamState((x,) * 4), giving(x))
    for add_norm in (one_stream, many):
        add_norm.build(x.shape)
    with pytest.raises(ValueError, match=r"has one stream.*Received: 2 streams and 1 memories"):
        one_stream(StreamState((x, x), (x,)), giving(x))
    with pytest.raises(ValueError, match=r"Expected 4 streams and 0 memories. Received: 2 and 0"):
        many(StreamState((x, x)), giving(x))
    dense = AddNorm(
        "dense_former", position=StackPosition(2, 2, "encoder").at("self_attention", SUBLAYERS)
    )
    dense.build(x.shape)
    with pytest.raises(
        ValueError, match=r"DenseFormer at this place.*and 1 memories. Received: 1 and 2"
    ):
        dense.branch_input(StreamState((x,), (x, x)))
    with pytest.raises(ValueError, match=r"Expected both of one shape.*\(2, 3, 8\).*\(2, 3, 7\)"):
        many(StreamState((x,) * 4), giving(x[..., :7]))


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ({"name": "hyper_connections", "num_streams": 0}, "num_streams >= 1. Received: 0"),
        ({"name": "mhc", "num_streams": 0}, "mHC needs streams"),
        ({"name": "mhc", "iterations": 0}, "iterations >= 1. Received: 0"),
        ({"name": "mhc_lite", "num_streams": 5}, "num_streams <= 4. Received: 5"),
        ({"name": "krom_hc", "num_streams": 6}, "1, 2, 4, 8 and so on. Received: 6"),
        ({"name": "mhc_lite", "start": "uniform"}, "one of mean, one_hot. Received: 'uniform'"),
        ({"name": "frac_connections", "num_streams": -1}, "num_streams >= 1"),
        ({"name": "attention_residuals", "block_size": 0}, "block_size >= 1"),
        ({"name": "residual_scalars", "start": "x"}, "one of pre_ln, decreasing"),
        ({"name": "dense_former", "dilation": 0}, "dilation >= 1. Received: 0"),
        ({"name": "dense_former", "period": 1.5}, "period >= 1. Received: 1.5"),
    ],
)
def test_fields_that_do_not_fit(scheme, message):
    with pytest.raises(ValueError, match=message):
        schemes.get(scheme)


def test_parts_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match=r"divides its width, 8. Received: 3"):
        schemes.get({"name": "frac_connections", "num_streams": 3}).open(X)


@pytest.mark.parametrize(
    "scheme",
    [
        "b2t",
        "hyper_connections",
        {"name": "mhc", "start": "one_hot"},
        "attention_residuals",
        "residual_scalars",
        "dense_former",
        "dlcl",
        {"name": "krom_hc", "start": "one_hot"},
    ],
)
def test_schemes_of_a_place_say_that_they_need_one(scheme):
    for position in (None, StackPosition(2, 2, "encoder")):
        with pytest.raises(ValueError, match=r"Expected a (StackP|p)osition"):
            schemes.get(scheme).plan(position)


def test_arrays_that_do_not_fit():
    assert LearnedArray("a", (2, "D", "D/4"), 0.0).sizes(8) == (2, 8, 2)
    for size in ("E", "D/3", "D/0"):
        with pytest.raises(ValueError, match=f"divides D = 8. Received: '{size}'"):
            LearnedArray("a", (size,), 0.0).sizes(8)
    with pytest.raises(ValueError, match=r"more than once: \['a'\]"):
        ResidualPlan(arrays=(LearnedArray("a", (), 0.0),) * 2)
