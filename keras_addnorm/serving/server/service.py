"""Predictions, metadata and status of a model, independent of the protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
)

from keras_addnorm.serving.errors import CODES, ServingError
from keras_addnorm.serving.server.conversions import Conversions
from keras_addnorm.serving.server.held_bytes import HeldBytes, Holding
from keras_addnorm.serving.server.limits import LARGE, check_cost
from keras_addnorm.serving.server.loaded_version import LoadedVersion, Signature
from keras_addnorm.serving.server.metrics import Metrics, Observed
from keras_addnorm.serving.server.proto_tensors import Arrays
from keras_addnorm.serving.server.scheduler import Scheduler
from keras_addnorm.serving.server.served_versions import Versions
from keras_addnorm.serving.server.settings import Settings


class Service:
    """Answers requests about one model.

    Args:
        settings: The limits.
        versions: The versions of the model.
        scheduler: Computes the predictions.
        metrics: The metrics to update.

    Attributes:
        conversions: Reads large requests and writes large answers.
        held: The memory that these take.
        is_stopping: Whether the server ends.
    """

    def __init__(
        self, settings: Settings, versions: Versions, scheduler: Scheduler, metrics: Metrics
    ) -> None:
        self.settings = settings
        self.versions = versions
        self.metrics = metrics
        self.conversions = Conversions()
        self.held = HeldBytes(settings.max_held_bytes)
        metrics.held_bytes.set_function(lambda: self.held.total)
        self._scheduler = scheduler
        self.is_stopping = False

    @property
    def is_ready(self) -> bool:
        """Whether requests can be answered now."""
        return self.versions.current is not None and not self.is_stopping

    async def predict(
        self,
        observed: Observed,
        signature: Signature,
        inputs: Callable[[], Awaitable[Arrays]],
        holding: Holding,
        timeout: float | None = None,
    ) -> Arrays:
        """Computes a signature; the inputs are converted here, and the answer is held, too.

        `timeout` is in seconds, where the client has set a limit.
        """
        observed.signature = signature.name
        arrays = await inputs()
        signature.check(arrays)
        size = check_cost(signature, arrays, self.settings)
        if size > LARGE:
            holding.add(size)
        return await self._scheduler.run(signature, arrays, timeout)

    def metadata(
        self, name: str, version: int | None = None
    ) -> tuple[model_pb2.ModelSpec, get_model_metadata_pb2.SignatureDefMap]:
        """Returns name and number of a version, or of the served one, and its signatures."""
        loaded = self.versions.find(name, version)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for key, definition in loaded.signature_defs.items():
            signatures.signature_def[key].CopyFrom(definition)
        return model_spec(name, loaded), signatures

    def status(
        self, name: str, version: int | None = None
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Returns the states of one or all versions, the highest first, or `NOT_FOUND`."""
        response = get_model_status_pb2.GetModelStatusResponse()
        for state in self.versions.states(name, version):
            entry = response.model_version_status.add()
            entry.version = state.version
            entry.state = entry.State.Value(state.state)
            if state.error_code != "OK":
                entry.status.error_code = CODES[state.error_code][0]
            entry.status.error_message = state.error_message
        return response


def model_spec(name: str, version: LoadedVersion, signature: str = "") -> model_pb2.ModelSpec:
    """The message that names a model, a version and a signature."""
    spec = model_pb2.ModelSpec(name=name, signature_name=signature)
    spec.version.value = version.number
    return spec


def find_signature(version: LoadedVersion, name: str, code: str) -> Signature:
    """Finds a signature by name, or raises an error with this code.

    As in TensorFlow Serving it is `INVALID_ARGUMENT` over REST and `FAILED_PRECONDITION` over gRPC.
    """
    signature = version.signatures.get(name)
    if signature is None:
        raise ServingError(
            code,
            f'Serving signature name: "{name[:100]}" not found in signature def. Expected one of '
            f"{sorted(version.signatures)}.",
        )
    return signature
