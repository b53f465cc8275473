"""gRPC's own health service, which load balancers ask; TensorFlow Serving has it, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_Response = health_pb2.HealthCheckResponse

# The whole server, and its services by their names and as TensorFlow Serving calls them here.
_SERVICES = frozenset(
    {
        "",
        *("PredictionService", "ModelService"),
        *("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"),
    }
)


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Tells whether the server can answer. All methods belong to the event loop.

    Not the servicer of `grpc_health`: who watches there keeps a server that stops from ending.
    """

    def __init__(self) -> None:
        self._status = _Response.NOT_SERVING
        self._is_over = False
        self._changed = asyncio.Event()

    def serve(self) -> None:
        """Says from now on that the server can answer."""
        self._set(_Response.SERVING)

    def stop(self) -> None:
        """Says for the last time that it cannot; who watches is sent away."""
        self._is_over = True
        self._set(_Response.NOT_SERVING)

    def _set(self, status: int) -> None:
        self._status = status
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Answers how a service fares."""
        if request.service not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return _Response(status=self._status)

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Answers how a service fares, now and whenever that changes."""
        is_known = request.service in _SERVICES
        while True:
            # As they are for this answer: the server may stop while it is sent.
            changed, is_last = self._changed, self._is_over
            yield _Response(status=self._status if is_known else _Response.SERVICE_UNKNOWN)
            if is_last:
                return
            await changed.wait()
