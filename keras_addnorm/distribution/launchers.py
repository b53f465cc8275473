"""What launchers say of the processes that they start: TF_CONFIG, torchrun, Slurm and MPI.

Each announces its processes in variables of its own. A training that did not read them would be
started several times over, each process on all data.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import parse_json

# Of more processes than there are.
_MOST_DIGITS = 9

Arguments = dict[str, Any]
"""Those of `jax.distributed.initialize`; without any, JAX asks the launcher itself."""


@dataclasses.dataclass(frozen=True)
class Announcement:
    """Several processes, as a launcher announces them.

    Attributes:
        launcher: Its name.
        variable: The variable that says so.
        count: How many processes there are.
        arguments: How JAX joins them, or `None` where the launcher does not tell enough.
    """

    launcher: str
    variable: str
    count: int
    arguments: Arguments | None


def announced(environment: Mapping[str, str] | None = None) -> Announcement | None:
    """Returns what a launcher announces of more than one process, or `None`.

    Args:
        environment: The variables; `None` for those of this process.

    Returns:
        The first one found.

    Raises:
        ValueError: If a variable does not say what it should.
    """
    variables = os.environ if environment is None else environment
    for read in _LAUNCHERS:
        found = read(variables)
        if found is not None and found.count > 1:
            return found
    return None


def _tensorflow(variables: Mapping[str, str]) -> Announcement | None:
    """`{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}`."""
    text = variables.get("TF_CONFIG")
    if not text:
        return None
    try:
        config = parse_json(text)
        cluster, task = config.get("cluster", {}), config.get("task", {})
        chiefs, workers = cluster.get("chief", []), cluster.get("worker", [])
        # The letters of a text would count as addresses.
        if not isinstance(chiefs, list) or not isinstance(workers, list):
            raise TypeError
        # Of a number that is none, or no whole one, its text is no number.
        addresses, index = [*chiefs, *workers], int(str(task.get("index", 0)))
        if not all(isinstance(address, str) for address in addresses):
            raise TypeError
        if task.get("type") == "worker":
            index += len(chiefs)
        is_known = task.get("type", "worker") in ("chief", "worker") and index >= 0
    except (ValueError, TypeError, AttributeError):
        raise ArgumentError(
            "TF_CONFIG does not say which processes there are.",
            'JSON such as {"cluster": {"worker": ["host:1234", ...]}, "task": {"type": "worker", '
            '"index": 0}}',
            "Unset TF_CONFIG to train alone.",
            received=f"{text:.200}",
        ) from None
    if len(addresses) > 1 and not (is_known and index < len(addresses)):
        raise ArgumentError(
            "TF_CONFIG gives this process no place among those that train.",
            f"a task of type chief or worker, among the {len(addresses)} of the cluster",
            "Parameter servers and evaluators do not exist here: start chief and workers only.",
            received=f"{task}",
        )
    arguments = {"num_processes": len(addresses), "process_id": index}
    first = addresses[0] if addresses else ""
    return Announcement(
        "TF_CONFIG", "TF_CONFIG", len(addresses), {"coordinator_address": first, **arguments}
    )


def _torchrun(variables: Mapping[str, str]) -> Announcement | None:
    count = _number(variables, "WORLD_SIZE")
    index = _number(variables, "RANK")
    if count is None or index is None:
        return None
    address, port = variables.get("MASTER_ADDR"), variables.get("MASTER_PORT")
    arguments: Arguments | None = None
    if index >= count > 1:
        raise ArgumentError(
            "RANK gives this process no place among those that train.",
            f"a number below WORLD_SIZE, which is {count}",
            "Unset both to train alone.",
            value=index,
        )
    # With torchrun's own agent a store listens at that port already.
    if address and port and variables.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        arguments = {
            "coordinator_address": f"{address}:{port}",
            "num_processes": count,
            "process_id": index,
        }
        local = _number(variables, "LOCAL_RANK")
        if local is not None and (_number(variables, "LOCAL_WORLD_SIZE") or 1) > 1:
            arguments["local_device_ids"] = [local]
    return Announcement("torchrun", "WORLD_SIZE", count, arguments)


def _slurm(variables: Mapping[str, str]) -> Announcement | None:
    # Of the step, and not of the job: a script of `sbatch` without `srun` is one process.
    if "SLURM_PROCID" not in variables:
        return None
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"):
        count = _number(variables, name)
        if count is not None:
            return Announcement("Slurm", name, count, {})
    return None


def _open_mpi(variables: Mapping[str, str]) -> Announcement | None:
    count = _number(variables, "OMPI_COMM_WORLD_SIZE")
    if count is None:
        return None
    return Announcement("Open MPI", "OMPI_COMM_WORLD_SIZE", count, {})


def _other_mpi(variables: Mapping[str, str]) -> Announcement | None:
    for name in ("PMI_SIZE", "MV2_COMM_WORLD_SIZE"):
        count = _number(variables, name)
        if count is not None:
            return Announcement("MPI", name, count, None)
    return None


def is_process_number(value: str) -> bool:
    """Says whether the value of a variable is a number of processes."""
    return value.isdecimal() and len(value) <= _MOST_DIGITS


def _number(variables: Mapping[str, str], name: str) -> int | None:
    value = variables.get(name)
    if not value:
        return None
    if not is_process_number(value):
        raise ArgumentError(
            f"The launcher's variable {name} has to be a number.",
            f"digits, {_MOST_DIGITS} at most",
            f"Unset {name} to train alone.",
            value=value,
        )
    return int(value)


# Open MPI and MPICH under Slurm have the variables of both, which agree.
_LAUNCHERS: tuple[Callable[[Mapping[str, str]], Announcement | None], ...] = (
    _tensorflow,
    _torchrun,
    _slurm,
    _open_mpi,
    _other_mpi,
)
