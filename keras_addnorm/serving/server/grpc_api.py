"""TensorFlow Serving's gRPC services on the official messages."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote

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
from keras_addnorm.serving.server.held_bytes import Holding
from keras_addnorm.serving.server.limits import LARGE, bytes_of
from keras_addnorm.serving.server.loaded_version import DEFAULT_SIGNATURE, Signature
from keras_addnorm.serving.server.proto_tensors import Arrays, to_arrays, to_proto
from keras_addnorm.serving.server.service import Service, find_signature, model_spec

# Bytes that a request may have beyond the largest allowed body.
_OVERHEAD = 64 * 1024
# An error's text is a header, where bytes beyond plain characters are written as %XX; clients take
# 8 KiB of headers.
_LONGEST_HEADER = 4096
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
# Fields that a request for metadata may name, of the one that there is.
_MOST_FIELDS = 10
# Calls at a time beyond those that may wait: at work, refused, and about health. gRPC receives a
# message before it is counted.
_MORE_CALLS = 64
# Milliseconds after which a connection is asked whether anybody reads there.
_KEEPALIVE = 30_000
# Milliseconds after which a connection is closed, once its calls have had the time that they may
# take: a client that asks and never takes the answer holds its memory no longer. To others it is
# one more connection a minute, which no call notices.
_CONNECTION_AGE = 60_000


def make_grpc_server(service: Service, health: Health) -> grpc.aio.Server:
    """Makes the gRPC server, without a port."""
    calls = _Calls(service)
    handler = functools.partial(_handler, service)
    settings = service.settings
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", settings.max_request_bytes + _OVERHEAD),
            ("grpc.max_send_message_length", -1),
            # Who does not read does not answer, either: the connection is closed.
            ("grpc.keepalive_time_ms", _KEEPALIVE),
            ("grpc.keepalive_timeout_ms", round(1000 * settings.send_timeout)),
            ("grpc.max_connection_age_ms", _CONNECTION_AGE),
            (
                "grpc.max_connection_age_grace_ms",
                round(1000 * (settings.timeout + settings.send_timeout)),
            ),
            # Otherwise two servers could share one port, and each would get some of the requests.
            ("grpc.so_reuseport", 0),
        ],
        maximum_concurrent_rpcs=settings.queue + _MORE_CALLS,
    )
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.PredictionService",
                {
                    "Predict": handler(predict_pb2.PredictRequest, calls.predict),
                    "GetModelMetadata": handler(
                        get_model_metadata_pb2.GetModelMetadataRequest, calls.metadata
                    ),
                },
            ),
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.ModelService",
                {
                    "GetModelStatus": handler(
                        get_model_status_pb2.GetModelStatusRequest, calls.status
                    )
                },
            ),
        ]
    )
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    return server


@dataclasses.dataclass(frozen=True)
class _Call:
    """What a method has to know of a call, besides the request.

    Args:
        timeout: Seconds that the client waits.
        size: The bytes of the request.
        holding: What it holds.
    """

    timeout: float
    size: int
    holding: Holding


class _Calls:
    """The methods of the services."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def predict(self, request: predict_pb2.PredictRequest, call: _Call) -> bytes:
        with self._service.metrics.observe("grpc") as observed:
            name, version = _target(request.model_spec)
            loaded = self._service.versions.find(name, version)
            signature = find_signature(
                loaded,
                request.model_spec.signature_name or DEFAULT_SIGNATURE,
                "FAILED_PRECONDITION",
            )
            wanted = _wanted(request.output_filter, list(signature.outputs))
            limit = self._service.settings.max_request_bytes
            convert = self._service.conversions
            outputs = await self._service.predict(
                observed,
                signature,
                lambda: convert.run(call.size, _inputs, request, signature, limit),
                call.holding,
                # A longer call would outlive its connection, which is closed after a minute.
                min(self._service.settings.timeout, call.timeout),
            )
            outputs = {key: outputs[key] for key in wanted}
            spec = model_spec(name, loaded, signature.name)
            size = bytes_of(outputs)
            return await convert.run(size, _answer, spec, outputs)

    async def metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, call: _Call
    ) -> bytes:
        name, version = _target(request.model_spec)
        fields = request.metadata_field[: _MOST_FIELDS + 1]
        if len(fields) > _MOST_FIELDS or set(fields) != {"signature_def"}:
            raise ServingError(
                "INVALID_ARGUMENT",
                "Expected 'signature_def' as metadata_field; received "
                f"{[name[:100] for name in fields[:3]]}.",
            )
        spec, signatures = self._service.metadata(name, version)
        response = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=spec)
        response.metadata["signature_def"].Pack(signatures)
        serialized: bytes = response.SerializeToString()
        return serialized

    async def status(
        self, request: get_model_status_pb2.GetModelStatusRequest, call: _Call
    ) -> bytes:
        serialized: bytes = self._service.status(*_target(request.model_spec)).SerializeToString()
        return serialized


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


def _answer(spec: model_pb2.ModelSpec, outputs: Arrays) -> bytes:
    response = predict_pb2.PredictResponse(model_spec=spec)
    for key, array in outputs.items():
        response.outputs[key].CopyFrom(to_proto(array))
    serialized: bytes = response.SerializeToString()
    return serialized


def _wanted(output_filter: Sequence[str], outputs: list[str]) -> list[str]:
    # Of one more than there are, one is unknown or stands twice; there may be a million.
    asked = list(output_filter[: len(outputs) + 1])
    if len(set(asked) & set(outputs)) < len(asked):
        raise ServingError(
            "INVALID_ARGUMENT",
            "output tensor alias not found in signature, or twice: "
            f"{[name[:100] for name in asked[:3]]}. Expected different ones of {sorted(outputs)}.",
        )
    return asked or outputs


def _for_header(text: str) -> str:
    """Return as much of a text as fits into a header."""
    sizes = (len(quote(each, safe=_PLAIN, errors="replace")) for each in text[:_LONGEST_HEADER])
    return text[: bisect.bisect_right([*itertools.accumulate(sizes)], _LONGEST_HEADER)]


def _handler(
    service: Service,
    request_type: type[message.Message],
    method: Callable[[Any, _Call], Awaitable[bytes]],
) -> Any:
    async def handle(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        holding = service.held.open()
        # An answer is held until the client has it.
        context.add_done_callback(lambda _: holding.close())
        try:
            size = len(data)
            if size > LARGE:
                holding.add(size)
            request = await service.conversions.run(size, _parsed, request_type, data)
            left = context.time_remaining()
            return await method(request, _Call(math.inf if left is None else left, size, holding))
        except ServingError as error:
            code, text = error.code, error.message
        await context.abort(grpc.StatusCode[code], _for_header(text))
        raise AssertionError("abort has raised")

    # No deserialiser: gRPC would send the text of its exceptions to the client.
    return grpc.unary_unary_rpc_method_handler(handle)


def _parsed(request_type: type[message.Message], data: bytes) -> message.Message:
    try:
        return request_type.FromString(data)
    except message.DecodeError:
        # The status code of gRPC's own servers.
        raise ServingError(
            "INTERNAL", f"The request is no {request_type.DESCRIPTOR.full_name} message."
        ) from None
