"""Several processes that train one model: finding each other, taking turns, reading weights.

Only the JAX backend has more than one process; with the others each of these functions knows one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.distribution.launchers import announced, is_process_number

_ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
_NUMBER = "KERAS_DISTRIBUTION_NUM_PROCESSES"
_INDEX = "KERAS_DISTRIBUTION_PROCESS_ID"


def join_processes() -> None:
    """Joins this process with the others, if its environment says that there are others.

    The variables are those of `keras.distribution.initialize`:

    | variable | |
    |---|---|
    | `KERAS_DISTRIBUTION_JOB_ADDRESSES` | `host:port` of process 0; or `auto` |
    | `KERAS_DISTRIBUTION_NUM_PROCESSES` | how many processes there are |
    | `KERAS_DISTRIBUTION_PROCESS_ID` | which one this is, from 0 |

    With `auto` the other two are left out, and `jax.distributed.initialize` asks the TPU's runtime,
    Slurm or Open MPI. Without the first one, this process follows what a launcher announces:
    TF_CONFIG, `RANK` and `WORLD_SIZE` with `MASTER_ADDR` and `MASTER_PORT`, Slurm or Open MPI.
    `KERAS_DISTRIBUTION_NUM_PROCESSES=1` alone says that it is alone whatever they announce. Has to
    be called before the first tensor is made; a second call does nothing.

    Raises:
        ValueError: If a variable is missing or no number, if several processes are announced and
            the backend is not JAX, or a launcher does not say how they find each other.
    """
    addresses = os.environ.get(_ADDRESSES)
    if addresses is None:
        _follow_launcher()
        return
    if keras.backend.backend() != "jax":
        raise ArgumentError(
            f"{_ADDRESSES} asks for several processes, which need the JAX backend.",
            "KERAS_BACKEND=jax",
            f"Set it, or unset {_ADDRESSES}.",
            value=keras.backend.backend(),
        )
    import jax

    if jax.distributed.is_initialized():
        return
    if addresses == "auto":
        jax.distributed.initialize()
        return
    jax.distributed.initialize(
        coordinator_address=addresses.split(",")[0],
        num_processes=_number(_NUMBER, "how many processes there are"),
        process_id=_number(_INDEX, "which of them this is, from 0"),
    )


def _follow_launcher() -> None:
    """Joins the processes that a launcher announces; refuses them where that cannot be."""
    found = None if os.environ.get(_NUMBER) == "1" else announced()
    if found is None:
        return
    what = f"{found.launcher} announces {found.count} processes ({found.variable})"
    alone = f"{_NUMBER}=1 lets each process train alone."
    if keras.backend.backend() != "jax":
        raise ArgumentError(
            f"{what}, and several processes that train together need the JAX backend.",
            "KERAS_BACKEND=jax",
            f"Set it; or {alone}",
            value=keras.backend.backend(),
        )
    if found.arguments is None:
        raise ArgumentError(
            f"{what}, and not how they find each other in JAX.",
            f"{_ADDRESSES}, {_NUMBER} and {_INDEX}",
            f"Set them: a free port of the host of process 0, the count, the rank. Or {alone}",
            received="none of them",
        )
    import jax

    if not jax.distributed.is_initialized():
        jax.distributed.initialize(**found.arguments)


def _number(name: str, meaning: str) -> int:
    value = os.environ.get(name, "")
    if not is_process_number(value):
        raise ArgumentError(
            f"{_ADDRESSES} is set, so {name} has to say {meaning}.",
            "a number",
            f"Set it, or {_ADDRESSES}=auto on TPUs, with Slurm and with Open MPI.",
            value=value,
        )
    return int(value)


def process_count() -> int:
    """Returns how many processes train together."""
    if keras.backend.backend() != "jax":
        return 1
    import jax

    count: int = jax.process_count()
    return count


def process_index() -> int:
    """Returns which of the processes this is, from 0."""
    if keras.backend.backend() != "jax":
        return 0
    import jax

    index: int = jax.process_index()
    return index


def is_first() -> bool:
    """Returns whether this process is the one that writes files and speaks."""
    return process_index() == 0


def wait_for_all(name: str) -> None:
    """Returns when every process has come here.

    Args:
        name: The same in all of them; another for each place.
    """
    if process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


@contextlib.contextmanager
def first_before_the_others(name: str) -> Iterator[None]:
    """Runs a block in process 0 first, then in all others: they find the files that it wrote.

    Args:
        name: The same in all processes; another for each place.

    Yields:
        Nothing.
    """
    if not is_first():
        wait_for_all(name)
        yield
        return
    try:
        yield
    finally:  # Also after an error: the others are to find it themselves and not to wait.
        wait_for_all(name)


@contextlib.contextmanager
def whole_values(variables: Iterable[Any]) -> Iterator[None]:
    """Lets this process compute with variables whose values lie on others' devices, too.

    Otherwise it would wait for the others to compute the same. The value is put together from the
    pieces on the devices of this process: they have to hold one whole copy, as `devices_per_model`
    sees to.

    Args:
        variables: Keras variables. They must not be changed in the block.

    Yields:
        Nothing.
    """
    if process_count() == 1:
        yield
        return
    spread = [(v, v.value) for v in variables if not v.value.is_fully_addressable]
    distribution = keras.distribution.distribution()
    try:
        # Else a variable that Keras makes in the block (it does, to write a file) is everybody's.
        keras.distribution.set_distribution(None)
        for variable, value in spread:
            variable._value = keras.ops.convert_to_tensor(_assembled(value))
        yield
    finally:
        for variable, value in spread:
            variable._value = value
        keras.distribution.set_distribution(distribution)


def _assembled(value: Any) -> np.ndarray:
    whole = np.empty(value.shape, value.dtype)
    for shard in value.addressable_shards:
        whole[shard.index] = np.asarray(shard.data)
    return whole
