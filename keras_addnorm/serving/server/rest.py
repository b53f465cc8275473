"""TensorFlow Serving's REST API, health, metrics and the page, as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import urllib.parse
import zlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from google.protobuf import json_format, message
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.held_bytes import Holding
from keras_addnorm.serving.server.json_tensors import PredictBody, answer
from keras_addnorm.serving.server.limits import LARGE, are_large
from keras_addnorm.serving.server.metrics import Observed
from keras_addnorm.serving.server.page import Page
from keras_addnorm.serving.server.service import Service, find_signature

_T = TypeVar("_T")

# The paths of TensorFlow Serving, where the name of a model has neither slash nor colon.
_CALL = re.compile(
    r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?:(classify|regress|predict)",
    re.IGNORECASE,
)
_QUERY = re.compile(
    r"/v1/models(?:/([^/:]+))?(?:/versions/(\d+)|/labels/([^/:]+))?(?:/(metadata))?",
    re.IGNORECASE,
)
_LARGEST_VERSION = 2**63 - 1
# A body above the limit is read and discarded, up to this many times the limit: a client that still
# sends does not see the response.
_DRAINED = 8
# Each member of a gzip copies what is behind it: many empty ones would cost the square of the body.
_MOST_MEMBERS = 16


# What TensorFlow Serving allows with --enable_cors_support, and bodies under gzip.
_OTHER_ORIGINS = Middleware(
    CORSMiddleware,
    allow_origins=("*",),
    allow_methods=("GET", "POST"),
    allow_headers=("Content-Type", "Content-Encoding"),
)


def make_app(service: Service) -> Starlette:
    """Makes the ASGI application that answers with a service."""
    handlers = _Handlers(service)
    app = Starlette(
        middleware=[
            Middleware(_OneLength),
            *([_OTHER_ORIGINS] if service.settings.cors else []),
        ],
        routes=[
            Route("/", handlers.page, methods=["GET"]),
            Route("/healthz", handlers.healthz, methods=["GET"]),
            Route("/readyz", handlers.readyz, methods=["GET"]),
            Route("/metrics", handlers.metrics, methods=["GET"]),
            Route("/v1/{rest:path}", handlers.ask, methods=["GET"]),
            Route("/v1/{rest:path}", handlers.call, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _http_error},
    )
    app.router.redirect_slashes = False  # It would send clients to the host that they name.
    return app


class _TooLargeError(ServingError):
    """A body above the limit: gRPC's status code in the metrics, HTTP's in the response."""

    http_status = 413

    def __init__(self, limit: int) -> None:
        super().__init__("RESOURCE_EXHAUSTED", f"The request is larger than {limit} bytes.")


class _CodingError(ServingError):
    """A body under a coding that is not understood."""

    http_status = 415

    def __init__(self, coding: str) -> None:
        super().__init__(
            "INVALID_ARGUMENT",
            f"Expected a body as it is, or with 'Content-Encoding: gzip'; received the coding "
            f"'{coding[:100]}'.",
        )


class _OneLength:
    """Refuses a request that says in two ways how long it is.

    A proxy may believe the other one, and what it takes for a body would be read as a request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope["headers"]}
        if {b"content-length", b"transfer-encoding"} <= names:
            text = "Expected Content-Length or Transfer-Encoding; received both."
            refusal = _json({"error": text}, 400)
            refusal.headers["connection"] = "close"
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _InPieces(StreamingResponse):
    """An answer that is made as it is read."""

    def __init__(self, pieces: AsyncGenerator[bytes, None]) -> None:
        super().__init__(pieces, media_type="application/json")
        self._pieces = pieces
        self.holds = contextlib.ExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.holds:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._pieces.aclose()


class _Handlers:
    """The handlers of the routes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._page = Page(service.versions.name)

    async def page(self, request: Request) -> Response:
        current = self._service.versions.current
        text = self._page.html("" if current is None else current.note)
        return Response(text, media_type="text/html", headers=self._page.headers)

    async def healthz(self, request: Request) -> Response:
        return _json({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        if self._service.is_ready:
            return _json({"status": "ready"})
        return _json({"status": "stopping" if self._service.is_stopping else "loading"}, 503)

    async def metrics(self, request: Request) -> Response:
        metrics = self._service.metrics
        return Response(metrics.text(), headers={"content-type": metrics.content_type})

    async def ask(self, request: Request) -> Response:
        """Answers GET: status and metadata."""
        try:
            return self._ask(request)
        except ServingError as error:
            return _error(error)

    async def call(self, request: Request) -> Response:
        """Answers POST: predict."""
        with contextlib.ExitStack() as holds:
            holding = holds.enter_context(self._service.held.open())
            try:
                with self._service.metrics.observe("rest") as observed:
                    response = await self._call(request, observed, holding)
            except ServingError as error:
                return _error(error)
            if isinstance(response, _InPieces):
                response.holds = holds.pop_all()
            return response

    def _ask(self, request: Request) -> Response:
        name, version, label, metadata = _parts(_QUERY, request)
        if not name:
            raise ServingError("INVALID_ARGUMENT", "Missing model name in request.")
        number = _number(version, label)
        if not metadata:
            return _json(_plain(self._service.status(name, number)))
        spec, signatures = self._service.metadata(name, number)
        return _json(
            {"model_spec": _plain(spec), "metadata": {"signature_def": _plain(signatures)}}
        )

    async def _call(self, request: Request, observed: Observed, holding: Holding) -> Response:
        name, version, label, method = _parts(_CALL, request)
        number = _number(version, label)
        body = await self._body(request, holding)
        if method.lower() != "predict":
            raise ServingError(
                "UNIMPLEMENTED", f"This server has no '{method}'; its models answer 'predict'."
            )
        size, convert = len(body), self._service.conversions
        parsed = await convert.run(size, PredictBody.parse, body, self._service.settings.max_values)
        del body
        loaded = self._service.versions.find(name, number)
        signature = find_signature(loaded, parsed.signature_name, "INVALID_ARGUMENT")
        outputs = await _unless_gone(
            request,
            self._service.predict(
                observed, signature, lambda: convert.run(size, parsed.tensors, signature), holding
            ),
        )
        pieces = answer(outputs, is_row_format=parsed.is_row_format)
        if are_large(outputs):
            return _InPieces(convert.each(pieces))
        return Response(b"".join(pieces), media_type="application/json")

    async def _body(self, request: Request, holding: Holding) -> bytes | bytearray:
        limit = self._service.settings.max_request_bytes
        codings = ", ".join(request.headers.getlist("content-encoding"))
        coding = codings.strip().lower() or "identity"
        if coding not in ("identity", "gzip", "x-gzip"):
            raise _CodingError(coding)
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > _DRAINED * limit:
            raise _TooLargeError(limit)
        body, size = bytearray(), 0
        refusal: ServingError | None = None
        try:
            async with asyncio.timeout(self._service.settings.timeout):
                async for chunk in request.stream():
                    size += len(chunk)
                    refusal = _TooLargeError(limit) if size > limit else refusal
                    if refusal is None:
                        body += chunk
                        refusal = _held(holding, len(body))
                    else:
                        body.clear()
                        if size > _DRAINED * limit:
                            break
        except TimeoutError:
            raise ServingError("DEADLINE_EXCEEDED", "The body did not arrive in time.") from None
        except ClientDisconnect:
            raise _gone_error() from None
        if refusal is not None:
            raise refusal
        if coding == "identity":
            return body
        body = await asyncio.to_thread(_inflated, bytes(body), limit)
        refusal = _held(holding, len(body))
        if refusal is not None:
            raise refusal
        return body


async def _unless_gone(request: Request, work: Coroutine[None, None, _T]) -> _T:
    """Waits for work that a client waits for; it is cancelled when the client has gone."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _gone_error()
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _gone(request: Request) -> None:
    """Returns when the client has gone, after its whole request."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _gone_error() -> ServingError:
    return ServingError("CANCELLED", "The client has gone.")


def _held(holding: Holding, size: int) -> ServingError | None:
    """Holds a body of this size, if it is large; what speaks against it."""
    if size > max(LARGE, holding.size):
        try:
            holding.add(size - holding.size)
        except ServingError as error:
            return error
    return None


def _inflated(body: bytes, limit: int) -> bytearray:
    """Inflates gzip; a small body can hold gigabytes, of which no more than the limit is made."""
    found = bytearray()
    try:
        for _ in range(_MOST_MEMBERS):
            gzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
            found += gzip.decompress(body, limit + 1 - len(found))
            if len(found) > limit:
                raise _TooLargeError(limit)
            if not gzip.eof:
                raise zlib.error("it ends too early")
            body = gzip.unused_data
            if not body:
                return found
        raise zlib.error(f"it has more than {_MOST_MEMBERS} members")
    except zlib.error as error:
        raise ServingError("INVALID_ARGUMENT", f"The body is no gzip: {error}.") from None


def _parts(pattern: re.Pattern[str], request: Request) -> tuple[str, ...]:
    # The raw path is parsed, so that a quoted slash or colon does not separate parts.
    path = request.scope["raw_path"].decode("latin-1")
    found = pattern.fullmatch(path)
    if found is None:
        is_call = request.method == "GET" and path.endswith((":predict", ":classify", ":regress"))
        hint = ". Send it with POST" if is_call else ""
        raise ServingError(
            "INVALID_ARGUMENT", f"Malformed request: {request.method} {path[:200]}{hint}"
        )
    return tuple(urllib.parse.unquote(part or "") for part in found.groups())


def _number(version: str, label: str) -> int | None:
    if label:
        raise ServingError(
            "INVALID_ARGUMENT", f"Unrecognized servable version label: {label[:100]}"
        )
    if not version:
        return None
    if len(version) > 19 or int(version) > _LARGEST_VERSION:
        raise ServingError("INVALID_ARGUMENT", "Failed to convert version to numeric: too large.")
    return int(version)


def _plain(content: message.Message) -> dict[str, Any]:
    return json_format.MessageToDict(
        content, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _json(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content, indent=1), status, media_type="application/json")


def _error(error: ServingError) -> Response:
    response = _json({"error": error.message}, error.http_status)
    if isinstance(error, _TooLargeError | _CodingError):  # the client may still send the body
        response.headers["connection"] = "close"
    if isinstance(error, _CodingError):
        response.headers["accept-encoding"] = "gzip"
    return response


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json(
        {"error": f"{error.detail}: {request.method} {request.url.path[:200]}"}, (error.status_code)
    )
