"""`keras.config.set_floatx` changes the default of layers, and no whole number of ours.

Keras gives a whole number without a dtype the width of floatx: 16 or 64 bits.
"""

import ast
import functools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from covering import covering
from filled_models import LABELS, SOURCE, batch, tiny_model
from new_process import run_on

import keras_addnorm
from keras_addnorm.decoding import Beam, DiverseBeam, NoRepeatNgram, Sample
from keras_addnorm.training import MaskedAccuracy, MaskedSparseCategoricalCrossentropy, Perplexity

FLOATX = ("float64", "float16", "bfloat16")
STRATEGIES = {
    "greedy": "greedy",
    "beam": Beam(3, 0.6, 2, early_stopping=False),
    "diverse beam": DiverseBeam(4, 2, num_return=4),
    "sample": Sample(1.5, top_k=4, top_p=0.9, seed=2, num_return=3),
}


@pytest.fixture
def floatx():
    """Sets floatx, and with it the default of layers; both are what they were afterwards."""
    before = keras.config.floatx(), keras.config.dtype_policy()

    def set_floatx(name):
        keras.config.set_floatx(name)
        keras.config.set_dtype_policy(name)  # Keras keeps the first one that was asked for.

    yield set_floatx
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


def generated(strategy, jit_compile):
    model = tiny_model(dtype="float32", scheme="pre_ln", num_encoder_layers=1)
    return model.generate(
        SOURCE,
        STRATEGIES[strategy],
        max_length=5,
        constraints=[NoRepeatNgram(2)],
        target_prefix=[[4], [5], [0]],
        jit_compile=jit_compile,
    )


under_float32 = functools.cache(generated)


@pytest.mark.parametrize(
    ("name", "strategy", "jit_compile"),
    [
        pytest.param(*row, marks=pytest.mark.slow if row[-1] else ())
        for row in covering(FLOATX, [*STRATEGIES], (False, True))
    ],
)
def test_f8_searches_of_a_float32_model_are_the_same(name, strategy, jit_compile, floatx):
    expected, expected_scores = under_float32(strategy, jit_compile)
    floatx(name)
    ids, scores = generated(strategy, jit_compile)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(scores, expected_scores)
    assert (ids.dtype, scores.dtype) == ("int32", "float32")


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOATX)
def test_f8_a_model_of_that_type_searches_scores_and_fits(name, floatx):
    floatx(name)
    model = tiny_model(scheme="pre_ln")
    assert model.decoder.compute_dtype == name
    for beams in (1, 3):
        ids, scores = model.generate(SOURCE, num_beams=beams, max_length=5, jit_compile=False)
        assert (ids.dtype, ids.shape) == ("int32", (3, 5))
        found = model.score(SOURCE, ids, jit_compile=False)
        tolerance = {"float64": 1e-5, "float16": 0.02, "bfloat16": 0.1}[name]
        np.testing.assert_allclose(found.log_probabilities, scores, rtol=tolerance, atol=tolerance)
    model.compile(
        keras.optimizers.SGD(0.01),
        MaskedSparseCategoricalCrossentropy(0.1),
        metrics=[MaskedAccuracy(), Perplexity()],
        jit_compile=False,
    )
    history = model.fit(batch(), LABELS, epochs=2, verbose=0).history
    # Under bfloat16 Keras keeps tensors of some of them.
    assert all(math.isfinite(float(value)) for values in history.values() for value in values)


ON_BACKENDS = [
    ("jax", "bfloat16"),
    ("jax", "float64"),
    ("tensorflow", "bfloat16"),
    ("torch", "bfloat16"),
]


@pytest.mark.release
@pytest.mark.parametrize(("backend", "name"), ON_BACKENDS)
def test_whole_numbers_stay_whole_on_every_backend(backend, name):
    """Keras on JAX makes floats of whole numbers without a type under bfloat16."""
    here = Path(__file__).parent
    found = json.loads(run_on(backend, here / "floatx_on_backend.py", name, folders=[here]))
    expected, other, own = found["float32"], found["set"], found["own"]
    assert other["searches"] == expected["searches"]
    assert other["positions"] == expected["positions"]
    assert other["R-Drop"] == expected["R-Drop"]
    first, again = (results["training"]["history"]["loss"] for results in (expected, other))
    if backend == "jax":  # Elsewhere Keras draws other numbers in another floatx.
        # Keras keeps the learning rate and the mean of the loss in floatx.
        np.testing.assert_allclose(again, first, rtol={"bfloat16": 0.01, "float64": 1e-5}[name])
    np.testing.assert_allclose(*own["scored"], rtol={"bfloat16": 0.15, "float64": 1e-5}[name])
    numbers = [*own["training"]["history"].values(), *own["training"]["evaluated"].values()]
    assert np.isfinite(np.hstack(numbers)).all()
    assert own["saved"]


POSITION_OF_DTYPE = {"arange": 3, "zeros": 1, "ones": 1, "full": 2, "eye": 3}
# Keras makes a tensor of each of their operands. (`x + 1` gives the type of x.)
OF_TWO = {
    *("add", "subtract", "multiply", "maximum", "minimum", "mod", "floor_divide", "power"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
}


def _is_number(node):
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "float"
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def without_dtype(source):
    """The lines of a file in which an operation of Keras makes numbers of no certain type."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if ast.unparse(node.func.value) not in ("ops", "keras.ops"):
            continue
        name, has_dtype = node.func.attr, any(word.arg == "dtype" for word in node.keywords)
        num_before = POSITION_OF_DTYPE.get(name, -1)
        if not has_dtype and len(node.args) <= num_before:
            lines.append(node.lineno)
        if name in OF_TWO and any(
            isinstance(operand, ast.Constant) and type(operand.value) is int
            for operand in node.args
        ):
            lines.append(node.lineno)
        if name == "where" and len(node.args) == 3 and all(map(_is_number, node.args[1:])):
            lines.append(node.lineno)
    return lines


def test_f8_numbers_of_ours_have_a_type():
    root = Path(keras_addnorm.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in sorted(root.rglob("*.py"))
        if path.parent.name not in ("runs", "data")  # They set floatx, or do not compute.
        for line in without_dtype(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"Pass a dtype, int32 for whole numbers: {', '.join(found)}"


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("ops.arange(n)", True),
        ("keras.ops.zeros((2,))", True),
        ("ops.where(x, 0, 1)", True),
        ("ops.maximum(x, 0)", True),
        ("ops.maximum(x, 1.0)", False),
        ('ops.maximum(x, ops.cast(0, "int32"))', False),
        ("x + 1", False),
        ("ops.where(x, -float('inf'), 0)", True),
        ('ops.arange(n, dtype="int32")', False),
        ('ops.full((2,), 0, "int32")', False),
        ("ops.where(x, y, 0)", False),
        ("np.arange(n)", False),
    ],
)
def test_f8_the_search_for_them_finds_them(line, is_found):
    assert without_dtype(line) == ([1] if is_found else [])


@pytest.mark.slow
def test_f8_runs_compute_in_their_own_precision(tmp_path):
    """`keras.json` with float16: the command sets it back."""
    (tmp_path / "keras.json").write_text(json.dumps({"floatx": "float16"}))
    code = """
import keras
from keras_addnorm.runs.process_startup import import_keras_quietly
assert keras.config.floatx() == "float16"
import_keras_quietly()
assert keras.config.floatx() == "float32"
assert keras.layers.Dense(3).compute_dtype == "float32"
"""
    environment = {**os.environ, "KERAS_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
