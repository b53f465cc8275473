"""The standard gRPC health service for load balancers, as in TensorFlow Serving."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_Response = health_pb2.HealthCheckResponse

# The whole server (""), its services, and TensorFlow Serving's short names of the services.
_SERVICES = frozenset(
    {
        "",
        *("PredictionService", "ModelService"),
        *("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"),
    }
)


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Tells clients whether the server can answer. Call all methods in the event loop.

    The servicer of `grpc_health` will not do: its `Watch` calls would keep a stopping server alive.
    """

    def __init__(self) -> None:
        self._status = _Response.NOT_SERVING
        self._is_over = False
        self._changed = asyncio.Event()

    def serve(self) -> None:
        """Sets the status to SERVING."""
        self._set(_Response.SERVING)

    def stop(self) -> None:
        """Sets the status to NOT_SERVING and ends all `Watch` calls."""
        self._is_over = True
        self._set(_Response.NOT_SERVING)

    def _set(self, status: int) -> None:
        self._status = status
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Returns the status of a service."""
        if request.service not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return _Response(status=self._status)

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Yields the status of a service, now and at each change."""
        is_known = request.service in _SERVICES
        while True:
            # Read before the response is sent: the server may stop meanwhile.
            changed, is_last = self._changed, self._is_over
            yield _Response(status=self._status if is_known else _Response.SERVICE_UNKNOWN)
            if is_last:
                return
            await changed.wait()
