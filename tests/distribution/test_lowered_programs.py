"""Training steps and searches lower for TPUs and GPUs, with cuDNN's attention where it can be."""

import json
from pathlib import Path

import pytest
from new_process import run_on

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("lowered_programs.py")
PROGRAMS = ("step", "step in chunks", "greedy", "beam", "diverse beam", "sample")
# Calls that XLA's own passes take away on every platform.
HARMLESS_CALLS = {"Sharding", "mhlo.topk", "mhlo.erf"}
FORWARD, BACKWARD = "__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"


@pytest.fixture(scope="module")
def found():
    outputs = {
        target: run_on("jax", "-W", "ignore", PROGRAM, target, JAX_PLATFORMS="cpu")
        for target in ("tpu", "gpu", "cudnn")
    }
    return {target: json.loads(output.splitlines()[-1]) for target, output in outputs.items()}


@pytest.mark.parametrize("target", ["tpu", "gpu", "cudnn"])
def test_programs_are_static_and_leave_the_host_and_float64_alone(found, target):
    for name in PROGRAMS:
        program = found[target][name]
        assert program["products"] > 10, name
        assert (program["float64"], program["dynamic"], program["host"]) == (0, 0, []), name
        assert not program["calls"].keys() - HARMLESS_CALLS - {FORWARD, BACKWARD}, name


def test_only_the_fused_attention_makes_no_scores(found):
    """Of self-attention in both stacks and cross-attention, with masks, forward and backward."""
    for name in PROGRAMS:
        program = found["cudnn"][name]
        expected = {FORWARD: 3, BACKWARD: 3} if name.startswith("step") else {FORWARD: 3}
        assert {k: v for k, v in program["calls"].items() if "cudnn" in k} == expected, name
        assert program["scores"] == 0, name
        for target in ("tpu", "gpu"):
            assert found[target][name]["scores"] > 0, name
            assert not found[target][name]["calls"].keys() & {FORWARD, BACKWARD}


def test_which_choices_fall_back_to_steps(found):
    programs = [name for name in found["cudnn"] if name.startswith("step")]
    calls = {name: found["cudnn"][name]["calls"].get(FORWARD, 0) for name in programs}
    assert calls["step with attention dropout"] == 0
    assert calls["step with relative positions"] == 1  # Cross-attention has no positions.
    assert calls["step with rotary positions"] == calls["step of wide groups"] == 3


def test_keras_takes_the_fused_attention_without_a_complaint(found):
    """It logs what cuDNN refuses, and computes that in another way."""
    assert found["cudnn"]["complaints"] == []
    assert found["cudnn"]["a mask that cuDNN refuses"] == ["Failed to apply cudnn implementation"]
