"""`train --distribution`: the same training on one device, on several, and in two processes."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from weight_files import tensors

from keras_addnorm.runs import RunDirectory

# `tests/distribution` trains on eight devices of one process.
pytestmark = pytest.mark.release

PROGRAM = Path(__file__).with_name("devices_training.py")
WORDS = {"red": "rot", "green": "grün", "blue": "blau", "big": "groß", "small": "klein"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Sentences of one word and of three, so that shares of a batch hold different numbers."""
    folder = tmp_path_factory.mktemp("corpus")
    pairs = [
        (f"{a} {b} {c}", WORDS[c] if a < b else f"{WORDS[c]} {WORDS[b]} {WORDS[a]}")
        for a in WORDS
        for b in WORDS
        for c in WORDS
    ]
    for split, some in {"train": pairs[::2], "val": pairs[1::4]}.items():
        for index, language in enumerate(("en", "de")):
            text = "".join(f"{pair[index]}\n" for pair in some)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def start(corpus):
    """Starts a part of the program with some environment; returns the process."""

    def starter(part, folder, **environment):
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", PROGRAM, part, corpus, folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(PROGRAM.parents[2]),
                "JAX_PLATFORMS": "cpu",
                "JAX_NUM_CPU_DEVICES": "2",
                **environment,
            },
        )

    return starter


def result(process):
    output, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return json.loads(output.splitlines()[-1])


@pytest.fixture(scope="module")
def jax_runs(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("jax")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    together = [
        start(
            "several_processes",
            folder,
            KERAS_BACKEND="jax",
            KERAS_DISTRIBUTION_JOB_ADDRESSES=address,
            KERAS_DISTRIBUTION_NUM_PROCESSES="2",
            KERAS_DISTRIBUTION_PROCESS_ID=str(index),
        )
        for index in range(2)
    ]
    found = {"together": [result(process) for process in together]}
    found["after four"] = {
        path.relative_to(folder / "together").as_posix()
        for path in (folder / "together").rglob("*.h5")
    }
    found["alone"] = result(start("one_process", folder, KERAS_BACKEND="jax"))
    return folder, found


@pytest.fixture(scope="module")
def mirrored(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorflow")
    return folder, result(start("mirrored", folder, KERAS_BACKEND="tensorflow"))


def test_two_processes_train_as_one_device(jax_runs):
    """Four epochs in two processes with spread weights, then one on two devices of one."""
    folder, found = jax_runs
    alone, together = (RunDirectory(folder / name).read_log() for name in ("alone", "together"))
    assert len(alone) == len(together) == 5
    batches = int(re.search(r"in (\d+) batches", found["together"][0]["said"][0])[1])
    assert 4 * batches >= 20
    for one, other in zip(alone, together, strict=True):
        for column in ("loss", "val_loss", "accuracy", "val_accuracy"):
            assert other[column] == pytest.approx(one[column], abs=1e-5), column
    assert alone[0]["loss"] - alone[4]["loss"] > 0.3


def test_sharded_weights_train_as_one_device_and_go_on_there(jax_runs):
    """An epoch with weights and batches divided by two devices, then one on a single device."""
    folder, found = jax_runs
    assert "Devices: 2 devices, each with a part of the weights." in found["alone"]["sharded"]
    assert "Going on after epoch 1 of 2." in found["alone"]["sharded"]
    alone, sharded = (RunDirectory(folder / name).read_log() for name in ("alone", "sharded"))
    assert len(sharded) == 2
    for one, other in zip(alone, sharded, strict=False):
        for column in ("loss", "val_loss", "accuracy", "val_accuracy"):
            assert other[column] == pytest.approx(one[column], abs=1e-5), column


def test_a_run_of_two_processes_goes_on_in_one(jax_runs):
    _, found = jax_runs
    assert found["alone"]["said"][0] == "Going on after epoch 4 of 5."
    assert "Devices: 2 copies of the weights." in found["alone"]["said"]


def test_only_the_first_process_speaks_and_writes(jax_runs):
    _, found = jax_runs
    first, second = found["together"]
    assert (first["place"], second["place"]) == (0, 1)
    assert second["said"] == []
    devices = "Devices: 2 copies of the weights, each spread over 2 devices; process 1 of 2."
    assert devices in first["said"]
    # Inside of epochs every three batches, of which the two newest files of all stay.
    assert found["after four"] == {
        "best.weights.h5",
        *(f"checkpoints/epoch-000{n}.weights.h5" for n in (1, 2, 3, 4)),
        "checkpoints/epoch-0003-batch-000003.weights.h5",
    }


def test_a_checkpoint_of_spread_weights_is_whole(jax_runs):
    folder, _ = jax_runs
    name = "checkpoints/epoch-0004.weights.h5"
    alone, together = (tensors(folder / run / name) for run in ("alone", "together"))
    assert alone.keys() == together.keys()
    for path, value in alone.items():
        assert together[path].shape == value.shape, path


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("heads", "multiples of 2. Received: num_heads=1, num_key_value_heads=1."),
        ("rows", "Expected a multiple of 2 rows. Received: [13]"),
        ("devices", "a divisor of its 2 devices. Received: devices_per_model=3."),
        ("monitor", "training.monitor_every = 0"),
    ],
)
def test_what_cannot_be_shared_is_refused(jax_runs, part, message):
    assert message in jax_runs[1]["alone"][part]


def test_processes_that_share_nothing_are_refused(jax_runs):
    for process in jax_runs[1]["together"]:
        assert "2 processes were started, and nothing says what they share" in process["refused"]


def test_mirrored_devices_train_as_one(mirrored):
    """Weights, moments and moving average after ten updates, two replicas of different tokens."""
    folder, found = mirrored
    assert "Devices: 2 devices with a copy of the weights each." in found["said"]
    assert found["said"][0] == "Going on after epoch 1 of 2."
    one, two = (tensors(folder / n / "checkpoints/epoch-0002.weights.h5") for n in ("one", "two"))
    assert one.keys() == two.keys() and any("optimizer" in name for name in one)
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=0, atol=2e-6, err_msg=name)
    logs = [RunDirectory(folder / name).read_log() for name in ("one", "two")]
    for row, other in zip(*logs, strict=True):
        for column in ("loss", "val_loss", "perplexity", "val_accuracy"):
            assert other[column] == pytest.approx(row[column], rel=1e-5), column


def test_what_tensorflow_cannot_share_is_refused(mirrored):
    assert "Set KERAS_BACKEND=jax" in mirrored[1]["model"]
    assert "Keras cannot accumulate gradients" in mirrored[1]["accumulation"]
