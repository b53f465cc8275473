"""How one training uses several devices: objects that know all that follows from the choice."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.distribution.layouts import (
    fully_sharded_layout,
    is_count,
    model_parallel_layout,
)
from keras_addnorm.distribution.processes import join_processes, process_count, process_index


class Devices(abc.ABC):
    """The devices that train one model together.

    Attributes:
        replicas: In how many parts a batch is divided: its rows have to be a multiple.
        devices_per_model: Over how many devices a copy of the weights is spread; see
            `require_divisible`.
        width_multiple_of: Of what the width of the residual stream has to be a multiple.
        row_share: Which of the equal parts of each batch's rows this process reads, and of how
            many: `(index, count)`.
        sums_replicas: Whether the replicas' losses are added up, so that the data have to bring
            the weight of each token (`MaskedSparseCategoricalCrossentropy(weighted_sum=True)`);
            else the loss sees the whole batch.
        compiles: Whether the training step can be compiled with XLA.
        accumulates: Whether Keras can accumulate gradients on them.
    """

    replicas: int = 1
    devices_per_model: int = 1
    width_multiple_of: int = 1
    row_share: tuple[int, int] = (0, 1)
    sums_replicas: bool = False
    compiles: bool = True
    accumulates: bool = True

    @abc.abstractmethod
    def scope(self) -> AbstractContextManager[Any]:
        """Returns the context in which the model is made, compiled and trained."""

    @abc.abstractmethod
    def __str__(self) -> str:
        """Says in a few words what they are."""


class OneDevice(Devices):
    """One device, as Keras does without being asked."""

    def scope(self) -> AbstractContextManager[Any]:
        """Returns a context that does nothing."""
        return contextlib.nullcontext()

    def __str__(self) -> str:
        return f"one device ({_kind_of_device()})"


def _kind_of_device() -> str:
    """CPU, GPU or TPU: where Keras computes when nothing else is asked for."""
    if keras.backend.backend() == "torch":  # For it Keras lists no devices.
        kind = str(keras.ops.zeros((), dtype="float32").device.type)
    else:
        kind = keras.distribution.list_devices()[0].partition(":")[0]
    return kind.upper()


class MirroredDevices(Devices):
    """All devices of this machine with a copy of the weights each: TensorFlow's MirroredStrategy.

    Each replica sums up its part of the loss and TensorFlow adds the replicas' gradients: the mean
    over all tokens comes from the weights that the data bring. XLA cannot compile a step over
    several of TensorFlow's CPU devices, and Keras cannot accumulate gradients in it.
    """

    sums_replicas = True
    compiles = False
    accumulates = False

    def __init__(self) -> None:
        import tensorflow as tf

        # Without a list, TensorFlow takes all GPUs or one CPU, whatever CPUs have been set up.
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        names = [device.name for device in tf.config.list_logical_devices(kind)]
        self._strategy = tf.distribute.MirroredStrategy(names)
        self.replicas = self._strategy.num_replicas_in_sync

    def scope(self) -> AbstractContextManager[Any]:
        """Returns the strategy's scope."""
        return self._strategy.scope()

    def __str__(self) -> str:
        return f"{self.replicas} devices with a copy of the weights each"


class ShardedDevices(Devices):
    """All devices of all processes, divided by JAX's compiler as a `keras.distribution` says.

    The compiled step sees the whole batch, so sums and means are those of one device.

    Args:
        distribution: Which weight and which row lies where.
        devices_per_model: Over how many devices one copy of the weights is spread, each of which
            computes a part of every product.
        width_multiple_of: Of what the width of the model has to be a multiple.
    """

    def __init__(
        self, distribution: Any, devices_per_model: int, width_multiple_of: int = 1
    ) -> None:
        # Each process reads its own rows: the data see to it.
        distribution.auto_shard_dataset = False
        self._distribution = distribution
        self.devices_per_model = devices_per_model
        self.width_multiple_of = width_multiple_of
        self.replicas = distribution.num_model_replicas
        self.row_share = (distribution.data_shard_id, min(self.replicas, process_count()))

    def scope(self) -> AbstractContextManager[Any]:
        """Returns the distribution's scope."""
        scope: AbstractContextManager[Any] = self._distribution.scope()
        return scope

    def __str__(self) -> str:
        if self.width_multiple_of > 1:
            return f"{self.replicas} devices, each with a part of the weights"
        copies = f"{self.replicas} copies of the weights"
        if self.devices_per_model > 1:
            copies += f", each spread over {self.devices_per_model} devices"
        if process_count() > 1:
            copies += f"; process {process_index() + 1} of {process_count()}"
        return copies


ONE_DEVICE = OneDevice()


def _one(devices_per_model: int) -> Devices:
    if process_count() > 1:
        raise ArgumentError(
            f"{process_count()} processes were started, and nothing says what they share.",
            "`training.distribution` of data or model",
            "Pass --distribution; or unset the KERAS_DISTRIBUTION_ variables, of which "
            "KERAS_DISTRIBUTION_NUM_PROCESSES=1 lets each process train alone.",
            received="none",
        )
    return ONE_DEVICE


def _mirrored(devices_per_model: int) -> Devices:
    return MirroredDevices()


def _data_parallel(devices_per_model: int) -> Devices:
    return ShardedDevices(keras.distribution.DataParallel(), 1)


def _model_parallel(devices_per_model: int) -> Devices:
    import jax

    local, everywhere = jax.local_device_count(), jax.device_count()
    spread = devices_per_model or local
    if spread > local or local % spread:
        raise ArgumentError(
            "A copy of the weights has to lie on devices of one process, so that each process can "
            "write it down and none waits for another's network in each layer.",
            f"a divisor of its {local} devices",
            devices_per_model=spread,
        )
    mesh = keras.distribution.DeviceMesh((everywhere // spread, spread), ("batch", "model"))
    return ShardedDevices(
        keras.distribution.ModelParallel(
            layout_map=model_parallel_layout(mesh), batch_dim_name="batch"
        ),
        spread,
    )


def _fully_sharded(devices_per_model: int) -> Devices:
    if process_count() > 1:
        raise ArgumentError(
            "The parts of the weights lie on devices of one process, which writes them down.",
            "one process, or `training.distribution` of data or model",
            received=f"{process_count()} processes",
        )
    names = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh((len(names),), ("batch",), names)
    distribution = keras.distribution.ModelParallel(
        layout_map=fully_sharded_layout(mesh), batch_dim_name="batch"
    )
    return ShardedDevices(distribution, 1, width_multiple_of=len(names))


# The ONE table of what there is, by name and backend.
_CHOICES: dict[str, dict[str, Callable[[int], Devices]]] = {
    "none": {"tensorflow": _one, "jax": _one, "torch": _one},
    "data": {"tensorflow": _mirrored, "jax": _data_parallel},
    "model": {"jax": _model_parallel},
    "fsdp": {"jax": _fully_sharded},
}


def get(name: str, devices_per_model: int = 0) -> Devices:
    """Finds the devices, and joins the other processes if there are any.

    Args:
        name: `none`, one device; `data`, a copy of the weights on each device and a part of each
            batch; `model`, copies that are spread over several devices; `fsdp`, a part of the
            weights and of each batch on each device.
        devices_per_model: With `model`, over how many; 0 for all of this process.

    Returns:
        The devices.

    Raises:
        ValueError: If there is no such choice on this backend, or the devices do not fit.

    Example:
        >>> from keras_addnorm import distribution
        >>> devices = distribution.get("none")
        >>> devices.replicas, devices.row_share
        (1, (0, 1))
    """
    if not isinstance(name, str) or name not in _CHOICES:
        raise ArgumentError(expected=f"a distribution of {', '.join(_CHOICES)}", value=name)
    if not is_count(devices_per_model):
        raise ArgumentError(
            "A copy of the weights lies on devices.",
            "an int `devices_per_model` >= 0",
            devices_per_model=devices_per_model,
        )
    join_processes()
    backend = keras.backend.backend()
    if backend not in _CHOICES[name]:
        raise ArgumentError(
            f"The distribution {name!r} needs the backend {' or '.join(_CHOICES[name])}.",
            remedy=f"Set KERAS_BACKEND={next(reversed(_CHOICES[name]))}.",
            value=backend,
        )
    return _CHOICES[name][backend](devices_per_model)
