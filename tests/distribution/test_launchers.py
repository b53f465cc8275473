"""Several processes that a launcher announces are joined, or refused in words."""

import json
import os
import socket
import subprocess
import sys

import jax
import pytest

from keras_addnorm import distribution
from keras_addnorm.distribution.launchers import announced

CLUSTER = {"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]}}
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "5", "MASTER_ADDR": "host", "MASTER_PORT": "7"}
THREE_OF_TORCHRUN = {"coordinator_address": "host:7", "num_processes": 5, "process_id": 2}


def tf_config(kind, index, cluster=CLUSTER):
    return {"TF_CONFIG": json.dumps({**cluster, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize(
    ("variables", "count", "arguments"),
    [
        (
            tf_config("worker", 1),
            3,
            {"coordinator_address": "a:1", "num_processes": 3, "process_id": 2},
        ),
        (
            tf_config("chief", 0),
            3,
            {"coordinator_address": "a:1", "num_processes": 3, "process_id": 0},
        ),
        (TORCHRUN, 5, THREE_OF_TORCHRUN),
        (
            {**TORCHRUN, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3"},
            5,
            {**THREE_OF_TORCHRUN, "local_device_ids": [1]},
        ),
        # torchrun's agent listens at that port itself.
        ({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"}, 5, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, 3, {}),
        ({"OMPI_COMM_WORLD_SIZE": "7", "OMPI_COMM_WORLD_RANK": "0"}, 7, {}),
        ({"PMI_SIZE": "2", "PMI_RANK": "1"}, 2, None),
        ({"MV2_COMM_WORLD_SIZE": "2"}, 2, None),
    ],
)
def test_what_launchers_announce(variables, count, arguments):
    found = announced(variables)
    assert (found.count, found.arguments) == (count, arguments)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        tf_config("worker", 0, {"cluster": {"worker": ["a:1"]}}),
        {"TF_CONFIG": "{}"},
        {**TORCHRUN, "WORLD_SIZE": "1"},
        {"WORLD_SIZE": "4"},  # Without a rank it is nobody's.
        {"SLURM_NTASKS": "4"},  # A shell of `salloc`.
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"},
        {"OMPI_COMM_WORLD_SIZE": "1"},
    ],
)
def test_one_process_is_alone(variables):
    assert announced(variables) is None


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TF_CONFIG": "{"}, r"Expected JSON such as .* Received: \{\."),
        ({"TF_CONFIG": "[3]"}, "does not say which processes"),
        ({"TF_CONFIG": '{"cluster": {"worker": [1, 2]}}'}, "does not say which processes"),
        ({"TF_CONFIG": '{"cluster": {"worker": "host:1234"}}'}, "does not say which processes"),
        ({"TF_CONFIG": '{"cluster": {"worker": {"a:1": 1}}}'}, "does not say which processes"),
        ({"TF_CONFIG": "[" * 10**5}, "does not say which processes"),
        *(
            (tf_config("worker", index), "does not say which processes")
            for index in (1.7, True, float("inf"), None)
        ),
        (tf_config("evaluator", 0), "Expected a task of type chief or worker, among the 3"),
        (tf_config("worker", 2), "Received: {'type': 'worker', 'index': 2}"),
        ({**TORCHRUN, "WORLD_SIZE": "many"}, "WORLD_SIZE has to be a number"),
        ({**TORCHRUN, "WORLD_SIZE": "9" * 5000}, "WORLD_SIZE has to be a number"),
        ({**TORCHRUN, "RANK": "5"}, "Expected a number below WORLD_SIZE, which is 5"),
    ],
)
def test_what_makes_no_sense_is_refused(variables, message):
    with pytest.raises(ValueError, match=message):
        announced(variables)


@pytest.fixture
def environment(monkeypatch):
    """Sets variables and the backend; returns what `jax.distributed.initialize` was called with."""
    called = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: called.append(given))

    def set_all(backend, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("keras.backend.backend", lambda: backend)
        return called

    return set_all


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_other_backends_refuse_several_processes(environment, backend):
    environment(backend, tf_config("worker", 1))
    with pytest.raises(ValueError, match=r"TF_CONFIG announces 3 processes .* KERAS_BACKEND=jax"):
        distribution.get("none")


def test_jax_joins_as_the_launcher_says(environment):
    called = environment("jax", TORCHRUN)
    distribution.join_processes()
    assert called == [THREE_OF_TORCHRUN]


def test_jax_refuses_what_it_cannot_join(environment):
    called = environment("jax", {"PMI_SIZE": "2"})
    with pytest.raises(ValueError, match=r"MPI announces 2 processes \(PMI_SIZE\).*Set them"):
        distribution.join_processes()
    assert not called


def test_a_process_that_says_it_is_alone_is_alone(environment):
    called = environment("tensorflow", {**TORCHRUN, "KERAS_DISTRIBUTION_NUM_PROCESSES": "1"})
    distribution.join_processes()
    assert not called


PROGRAM = """
from keras_addnorm import distribution
devices = distribution.get("data")
print(devices.row_share, devices)
try:
    distribution.get("none")
except ValueError as error:
    print(str(error).split(".")[0])
"""


@pytest.mark.slow
def test_two_processes_find_each_other_by_tf_config():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        cluster = {"cluster": {"worker": [f"127.0.0.1:{free.getsockname()[1]}", "127.0.0.1:1"]}}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "KERAS_BACKEND": "jax",
                "JAX_PLATFORMS": "cpu",
                **tf_config("worker", index, cluster),
            },
        )
        for index in range(2)
    ]
    said = [process.communicate()[0].splitlines() for process in started]
    assert [process.returncode for process in started] == [0, 0]
    for index, lines in enumerate(said):
        place = f"({index}, 2) 2 copies of the weights; process {index + 1} of 2"
        refusal = "2 processes were started, and nothing says what they share"
        assert lines[-2:] == [place, refusal]
