"""The gRPC transport of `Client`, on TensorFlow Serving's official messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from keras_addnorm.serving.errors import (
    CODES,
    LARGEST_ANSWER,
    MOST_AXES,
    ServingError,
    VersionStatus,
    understood,
)

_CODE_NAMES = {0: "OK"} | {number: name for name, (number, _) in CODES.items()}
_BYTES_SUFFIX = "_bytes"
_ANY_SIZE = 1 << 20


class GrpcTransport:
    """Calls over gRPC.

    Args:
        target: Host and port.
        model: The model's name.
        version: A version; `None` for the one that is served.
    """

    def __init__(self, target: str, model: str, version: int | None) -> None:
        options = [("grpc.max_receive_message_length", LARGEST_ANSWER)]
        self._channel = grpc.insecure_channel(target, options)
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._model = model_service_pb2_grpc.ModelServiceStub(self._channel)
        self._spec = model_pb2.ModelSpec(name=model)
        if version is not None:
            self._spec.version.value = version

    def predict(
        self, signature: str, inputs: dict[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]:
        """Computes a signature."""
        request = predict_pb2.PredictRequest(model_spec=self._spec)
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(array))
        answer = _call(self._prediction.Predict, request, timeout)
        with understood():
            return {name: _to_array(name, tensor) for name, tensor in answer.outputs.items()}

    def status(self, timeout: float) -> list[VersionStatus]:
        """Tells how the versions fare."""
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=self._spec)
        answer = _call(self._model.GetModelStatus, request, timeout)
        with understood():  # A state may be any number.
            return [
                VersionStatus(
                    entry.version,
                    entry.State.Name(entry.state),
                    _CODE_NAMES.get(entry.status.error_code, "UNKNOWN"),
                    entry.status.error_message,
                )
                for entry in answer.model_version_status
            ]

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()


def _call(method: Callable[..., Any], request: Any, timeout: float) -> Any:
    try:
        return method(request, timeout=timeout)
    except grpc.RpcError as error:
        raise ServingError(error.code().name, error.details() or "no details") from error


def _to_array(name: str, tensor: Any) -> np.ndarray:
    if len(tensor.tensor_shape.dim) > MOST_AXES:
        raise ValueError(f"'{name}' would have {len(tensor.tensor_shape.dim):,} axes")
    # The last value of a list stands for all that are left, however many a shape says.
    size = math.prod(dim.size for dim in tensor.tensor_shape.dim)
    if not 0 <= size <= max(_ANY_SIZE, 8 * tensor.ByteSize()):
        raise ValueError(f"'{name}' would have {size:,} numbers")
    array = np.asarray(tf.make_ndarray(tensor))
    if array.dtype != object or name.endswith(_BYTES_SUFFIX):
        return array
    texts = [value.decode("utf-8", "replace") for value in array.ravel()]
    return np.array(texts, object).reshape(array.shape)
