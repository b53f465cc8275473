"""Gradient checkpointing changes memory and time, and no number."""

import json

import checkpointing_on_backend as program
import numpy as np
import pytest
from new_process import run_on


def assert_same(kept, again):
    np.testing.assert_allclose(kept["losses"], again["losses"], rtol=1e-6)
    for a, b in zip(kept["weights"], again["weights"], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [pytest.param(False, marks=pytest.mark.release), True])
def test_the_same_training_on_tensorflow(jit_compile):
    kept = program.run(jit_compile)
    assert len(set(kept["losses"])) == 3
    assert_same(kept, program.run(jit_compile, gradient_checkpointing=True))
    assert kept["losses"] != program.run(jit_compile, dropout=0.0)["losses"]


@pytest.mark.release
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_same_training_on_other_backends(backend):
    found = json.loads(run_on(backend, "-W", "ignore", program.__file__).splitlines()[-1])
    assert_same(found["kept"], found["again"])
    if backend == "jax":
        bytes_kept = found["kept bytes"]
        assert bytes_kept["again"] < 0.2 * bytes_kept["kept"]
        # One byte for each number that dropout and ReLU let through or not stays one.
        assert bytes_kept["mixed_bfloat16"] < 0.56 * bytes_kept["float32"]
