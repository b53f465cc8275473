"""JAX on eight simulated devices: the same numbers as on one, each device with its share."""

import json
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from new_process import environment_of

from keras_addnorm import distribution

PROGRAM = Path(__file__).with_name("eight_devices.py")


@pytest.fixture(scope="module")
def found():
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        env={
            **environment_of("jax"),
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(PROGRAM.parents[2]),
            "JAX_NUM_CPU_DEVICES": "8",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data", "model", "fsdp"])
def test_losses_are_those_of_one_device(found, name):
    one = found["one"]["losses"]
    assert len(one) == 20 and one[0] - one[-1] > 0.3  # It learns, so the steps are not all alike.
    assert found["one"]["devices"] == 1 and found[name]["devices"] == 8
    np.testing.assert_allclose(found[name]["losses"], one, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data", "model", "fsdp"])
def test_every_token_counts_the_same_wherever_it_lies(found, name):
    """Devices with two tokens a row and devices with ten: the mean is over tokens."""
    over_tokens, over_halves = found[name]["token means"]
    assert abs(over_tokens - over_halves) > 5e-4
    assert found[name]["tested"] == pytest.approx(over_tokens, abs=1e-5)


# What four devices hold of weights with 8 heads of 2, 24 columns inside and 64 pieces.
SHARES = {
    "encoder/layer_0/self_attention/query_projection/kernel": ([16, 16], [16, 4]),
    "encoder/layer_0/self_attention/key_projection/bias": ([16], [4]),
    "decoder/layer_0/cross_attention/value_projection/kernel": ([16, 16], [16, 4]),
    "decoder/layer_0/cross_attention/output_projection/kernel": ([16, 16], [4, 16]),
    "decoder/layer_0/cross_attention/output_projection/bias": ([16], [16]),
    "decoder/layer_0/feed_forward/intermediate_projection/kernel": ([16, 24], [16, 6]),
    "decoder/layer_0/feed_forward/intermediate_projection/bias": ([24], [6]),
    "decoder/layer_0/feed_forward/output_projection/kernel": ([24, 16], [6, 16]),
    "encoder/layer_0/feed_forward/gate_projection/kernel": ([16, 24], [16, 6]),
    "vocabulary_projection/kernel": ([16, 64], [16, 16]),
    "vocabulary_projection/bias": ([64], [16]),
    "encoder_embedding/embeddings": ([64, 16], [16, 16]),
    "decoder_embedding/embeddings": ([64, 16], [16, 16]),
    "decoder/final_norm/gamma": ([16], [16]),
}


@pytest.mark.slow
def test_each_device_holds_its_share(found):
    for path, (whole, share) in SHARES.items():
        assert found["model"]["shapes"][path] == [whole, [share]], path
        assert found["data"]["shapes"][path] == [whole, [whole]], path
        for moment in ("momentum", "velocity"):
            key = f"{path.replace('/', '_')}_{moment}"
            assert found["model"]["shapes"][key] == [whole, [share]], key


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parts"), [("model", 4), ("fsdp", 8)])
def test_no_matrix_lies_whole_on_a_device(found, name, parts):
    """Every weight with two axes is spread: a new one must not be forgotten in the layout."""
    for path, (whole, shares) in found[name]["shapes"].items():
        if len(whole) == 2:
            assert len(shares) == 1 and parts * np.prod(shares[0]) == np.prod(whole), path


# Calls that XLA's own passes take away on every platform.
HARMLESS_CALLS = {"Sharding", "mhlo.topk", "mhlo.erf"}


def calls(program):
    return set(re.findall(r"custom_call @([\w.]+)", program))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["training step", "search"])
def test_programs_for_tpus_have_static_shapes_and_leave_the_host_alone(found, name):
    program = found["tpu"][name]
    assert program.count("stablehlo.dot_general") > 10
    assert "tensor<?" not in program and "dynamic_reshape" not in program
    assert not calls(program) - HARMLESS_CALLS
    for host in ("infeed", "outfeed", "stablehlo.send", "stablehlo.recv", "callback"):
        assert host not in program


@pytest.mark.slow
def test_a_call_of_the_host_would_be_refused(found):
    assert "different from the lowering platform tpu" in found["tpu"]["a callback"]


@pytest.mark.slow
def test_what_cannot_be_divided_is_refused(found):
    assert "devices_per_model=16" in found["too many"] and "its 8 devices" in found["too many"]
    assert "no axis 'model'" in found["no axis"] and "('batch',)" in found["no axis"]
    assert "no axis 'batch'" in found["no batch axis"]
    with pytest.raises(ValueError, match=r"num_heads=6, vocabulary=7\. Change") as refused:
        distribution.require_divisible({"num_heads": 6, "width": 8, "vocabulary": 7}, devices=4)
    assert "width" not in str(refused.value)
    distribution.require_divisible({"num_heads": 6}, devices=3)


def test_one_device_says_its_kind(monkeypatch):
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: ["tpu:0", "tpu:1"])
    assert str(distribution.get("none")) == "one device (TPU)"


def test_sharded_weights_stay_in_one_process(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    monkeypatch.setattr("keras_addnorm.distribution.devices.process_count", lambda: 3)
    with pytest.raises(ValueError, match=r"one process, or .* Received: 3 processes"):
        distribution.get("fsdp")


def test_unknown_and_impossible_choices():
    with pytest.raises(ValueError, match="of none, data, model, fsdp"):
        distribution.get("pipeline")
    for name in ("model", "fsdp"):
        with pytest.raises(ValueError, match="Set KERAS_BACKEND=jax"):
            distribution.get(name)


@pytest.mark.parametrize(
    ("backend", "variables", "message"),
    [
        ("tensorflow", {"JOB_ADDRESSES": "host:1"}, "Expected KERAS_BACKEND=jax"),
        ("jax", {"JOB_ADDRESSES": "host:1"}, "NUM_PROCESSES has to say how many"),
        ("jax", {"JOB_ADDRESSES": "host:1", "NUM_PROCESSES": "2"}, "PROCESS_ID has to say which"),
        ("jax", {"JOB_ADDRESSES": "host:1", "NUM_PROCESSES": "two"}, "Received: 'two'"),
    ],
)
def test_a_place_that_is_half_told_is_refused(monkeypatch, backend, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(f"KERAS_DISTRIBUTION_{name}", value)
    monkeypatch.setattr("keras.backend.backend", lambda: backend)
    with pytest.raises(ValueError, match=message):
        distribution.join_processes()
