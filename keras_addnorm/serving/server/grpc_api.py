"""TensorFlow Serving's gRPC services on the official messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf import message
from grpc_health.v1 import health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    predict_pb2,
)

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.health import Health
from keras_addnorm.serving.server.loaded_version import DEFAULT_SIGNATURE, Arrays, Signature
from keras_addnorm.serving.server.proto_tensors import to_arrays, to_proto
from keras_addnorm.serving.server.service import Service, find_signature, model_spec

# Bytes that a request may have beyond the largest allowed body.
_OVERHEAD = 64 * 1024
_MESSAGE_IN_HEADER = 1000


def make_grpc_server(service: Service, health: Health) -> grpc.aio.Server:
    """Makes the gRPC server, without a port.

    Args:
        service: Answers the requests.
        health: Answers the health checks.

    Returns:
        The server.
    """
    calls = _Calls(service)
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", service.settings.max_body_bytes + _OVERHEAD),
            ("grpc.max_send_message_length", -1),
            # Otherwise two servers could share one port, and each would get some of the requests.
            ("grpc.so_reuseport", 0),
        ]
    )
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.PredictionService",
                {
                    "Predict": _handler(predict_pb2.PredictRequest, calls.predict),
                    "GetModelMetadata": _handler(
                        get_model_metadata_pb2.GetModelMetadataRequest, calls.metadata
                    ),
                },
            ),
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.ModelService",
                {
                    "GetModelStatus": _handler(
                        get_model_status_pb2.GetModelStatusRequest, calls.status
                    )
                },
            ),
        ]
    )
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    return server


class _Calls:
    """The methods of the services."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def predict(
        self, request: predict_pb2.PredictRequest, timeout: float | None
    ) -> predict_pb2.PredictResponse:
        with self._service.metrics.observe("grpc") as observed:
            name, version = _target(request.model_spec)
            loaded = self._service.versions.find(name, version)
            signature = find_signature(
                loaded,
                request.model_spec.signature_name or DEFAULT_SIGNATURE,
                "FAILED_PRECONDITION",
            )
            wanted = _wanted(list(request.output_filter), list(signature.outputs))
            limit = self._service.settings.max_body_bytes
            outputs = await self._service.predict(
                observed,
                signature,
                lambda: _inputs(request, signature, limit),
                timeout,
            )
            response = predict_pb2.PredictResponse(
                model_spec=model_spec(name, loaded, signature.name)
            )
            for key in wanted:
                response.outputs[key].CopyFrom(to_proto(outputs[key]))
            return response

    async def metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, timeout: float | None
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        name, version = _target(request.model_spec)
        if set(request.metadata_field) != {"signature_def"}:
            raise ServingError(
                "INVALID_ARGUMENT",
                "Expected 'signature_def' as metadata_field; received "
                f"{list(request.metadata_field)[:3]}.",
            )
        spec, signatures = self._service.metadata(name, version)
        response = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=spec)
        response.metadata["signature_def"].Pack(signatures)
        return response

    async def status(
        self, request: get_model_status_pb2.GetModelStatusRequest, timeout: float | None
    ) -> get_model_status_pb2.GetModelStatusResponse:
        return self._service.status(*_target(request.model_spec))


def _target(spec: model_pb2.ModelSpec) -> tuple[str, int | None]:
    if not spec.name:
        raise ServingError("INVALID_ARGUMENT", "Missing ModelSpec, or it has no name.")
    if spec.WhichOneof("version_choice") == "version_label":
        raise ServingError(
            "INVALID_ARGUMENT",
            f"Unrecognized servable version label: {spec.version_label[:100]}",
        )
    return spec.name, spec.version.value if spec.HasField("version") else None


def _inputs(request: predict_pb2.PredictRequest, signature: Signature, max_bytes: int) -> Arrays:
    signature.check_names(request.inputs.keys())
    return to_arrays(request.inputs, max_bytes)


def _wanted(output_filter: list[str], outputs: list[str]) -> list[str]:
    unknown = sorted(set(output_filter) - set(outputs))
    if unknown or len(set(output_filter)) < len(output_filter):
        raise ServingError(
            "INVALID_ARGUMENT",
            f"output tensor alias not found in signature, or twice: {output_filter}. Expected "
            f"different ones of {sorted(outputs)}.",
        )
    return output_filter or outputs


def _handler(
    request_type: type[message.Message],
    method: Callable[[Any, float | None], Awaitable[message.Message]],
) -> Any:
    async def handle(data: bytes, context: grpc.aio.ServicerContext) -> message.Message:
        try:
            return await method(_parsed(request_type, data), context.time_remaining())
        except ServingError as error:
            code, text = error.code, error.message
        await context.abort(grpc.StatusCode[code], text[:_MESSAGE_IN_HEADER])
        raise AssertionError("abort has raised")

    # No deserialiser: gRPC would send the text of its exceptions to the client.
    return grpc.unary_unary_rpc_method_handler(
        handle, response_serializer=lambda response: response.SerializeToString()
    )


def _parsed(request_type: type[message.Message], data: bytes) -> message.Message:
    try:
        return request_type.FromString(data)
    except message.DecodeError:
        # The status code of gRPC's own servers.
        raise ServingError(
            "INTERNAL", f"The request is no {request_type.DESCRIPTOR.full_name} message."
        ) from None
