"""The REST transport of `Client`."""

from __future__ import annotations

import base64
import functools
import http.client
import io
import json
import socket
import time
import urllib.parse
from collections import deque
from typing import Any

import numpy as np

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import parse_json
from keras_addnorm.serving.errors import (
    CODES,
    LARGEST_ANSWER,
    MOST_VALUES,
    ServingError,
    VersionStatus,
    understood,
)

# Several codes share a status: this is the one that a server of models means by it.
_CODE_OF = {status: code for code, (_, status) in reversed(CODES.items())} | {
    400: "INVALID_ARGUMENT",
    413: "INVALID_ARGUMENT",
    500: "INTERNAL",
}
_DTYPES: dict[str, Any] = {
    "DT_HALF": np.float16,
    "DT_FLOAT": np.float32,
    "DT_DOUBLE": np.float64,
    "DT_INT8": np.int8,
    "DT_INT16": np.int16,
    "DT_INT32": np.int32,
    "DT_INT64": np.int64,
    "DT_UINT8": np.uint8,
    "DT_UINT16": np.uint16,
    "DT_UINT32": np.uint32,
    "DT_UINT64": np.uint64,
    "DT_BOOL": np.bool_,
    "DT_STRING": object,
}


class RestTransport:
    """Calls over HTTP, on connections that are kept open: as many as there are calls at once.

    Args:
        url: Scheme, host, port, and a path in front of `/v1` if there is one.
        model: The model's name.
        version: A version; `None` for the one that is served.

    Raises:
        ValueError: If `url` is none.
    """

    def __init__(self, url: str, model: str, version: int | None) -> None:
        secure = url.startswith("https://")
        self._kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        try:
            parts = urllib.parse.urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
            self._kind(self._host, self._port)  # It looks at the host.
            self._host.encode("idna")  # So does what resolves it.
            parts.path.encode("ascii")
            # Nothing of these would be sent.
            is_address = self._host and not (parts.query or parts.fragment or "@" in parts.netloc)
        except (ValueError, http.client.InvalidURL):
            is_address = False
        if not is_address or not url.isprintable() or " " in url:
            raise ArgumentError(
                "This is no address of a server.",
                "a URL such as 'http://localhost:8501', without a user, ?, # and spaces",
                value=url,
            )
        path = f"{parts.path.rstrip('/')}/v1/models/{urllib.parse.quote(model, safe='')}"
        self._path = path if version is None else f"{path}/versions/{version}"
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._dtypes: dict[str, dict[str, Any]] = {}

    def predict(
        self, signature: str, inputs: dict[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]:
        """Computes a signature."""
        end = time.monotonic() + timeout
        # First, so that an answer that was computed is not lost with a server that goes away.
        dtypes = self._dtypes_of(signature, timeout)
        body = {
            "signature_name": signature,
            "inputs": {name: _plain(array.tolist()) for name, array in inputs.items()},
        }
        left = max(end - time.monotonic(), 1e-3)
        answer = self._ask("POST", f"{self._path}:predict", left, body)
        with understood():
            outputs = answer["outputs"]
            if len(dtypes) == 1:  # a single output comes without its name
                (name,) = dtypes
                outputs = {name: outputs}
            return {
                name: np.array(_without_base64(value), dtypes.get(name))
                for name, value in outputs.items()
            }

    def status(self, timeout: float) -> list[VersionStatus]:
        """Tells how the versions fare."""
        answer = self._ask("GET", self._path, timeout)
        with understood():
            return [
                VersionStatus(
                    int(entry["version"]),
                    entry["state"],
                    entry["status"]["error_code"],
                    entry["status"]["error_message"],
                )
                for entry in answer["model_version_status"]
            ]

    def close(self) -> None:
        """Ends the connections."""
        while self._idle:
            self._idle.pop().close()

    def _dtypes_of(self, signature: str, timeout: float) -> dict[str, Any]:
        """JSON does not say which numbers are float32; the model's metadata does."""
        if signature not in self._dtypes:
            answer = self._ask("GET", f"{self._path}/metadata", timeout)
            with understood():
                definitions = answer["metadata"]["signature_def"]["signature_def"]
                self._dtypes = {
                    key: {name: _DTYPES.get(one["dtype"]) for name, one in entry["outputs"].items()}
                    for key, entry in definitions.items()
                }
        return self._dtypes.get(signature, {})

    def _ask(self, method: str, path: str, timeout: float, body: Any = None) -> Any:
        try:
            content = None if body is None else json.dumps(body).encode("ascii")
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"An input cannot be sent: {error}.",
                "texts, bytes, booleans, and numbers that JSON has",
            ) from error
        status, text = self._exchange(method, path, timeout, content)
        if sum(map(text.count, (b",", b"[", b"{"))) > MOST_VALUES:
            raise ServingError("INTERNAL", f"The answer has more than {MOST_VALUES:,} values.")
        try:
            answer = parse_json(text)
        except ValueError:
            answer = {"error": f"the answer is not JSON: {text[:100]!r}"}
        if not isinstance(answer, dict):
            answer = {"error": f"the answer is not a JSON object: {text[:100]!r}"}
        if status == 200 and "error" not in answer:
            return answer
        raise ServingError(
            _CODE_OF.get(status, "UNKNOWN"), str(answer.get("error", f"status {status}"))
        )

    def _exchange(
        self, method: str, path: str, timeout: float, content: bytes | None
    ) -> tuple[int, bytes]:
        connection = self._connection(timeout)
        end = time.monotonic() + timeout
        try:
            connection.request(method, path, content, {"Content-Type": "application/json"})
            connection.response_class = functools.partial(_answer, end=end)  # type: ignore[assignment]
            response = connection.getresponse()
            answer = response.status, _read(response)
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise ServingError(
                    "DEADLINE_EXCEEDED",
                    f"No answer from {self._host} within {timeout:.3g} seconds.",
                ) from error
            if isinstance(error, OSError | http.client.HTTPException):
                raise ServingError(
                    "UNAVAILABLE", f"No connection to {self._host}:{self._port}: {error}"
                ) from error
            raise
        self._idle.append(connection)
        return answer

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._kind(self._host, self._port)
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        return connection


class _Timely(io.RawIOBase):
    """What a server sends until a point in time, from the status on: it may come drop by drop.

    A timeout of the socket alone begins anew with each byte.
    """

    def __init__(self, connection: socket.socket, end: float) -> None:
        super().__init__()
        self._connection, self._end = connection, end
        self._sent = connection.makefile("rb", buffering=0)

    def makefile(self, mode: str) -> io.BufferedReader:
        """As sockets have it."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Waits for the next bytes, and no longer than there is time."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._sent.readinto(buffer)

    def close(self) -> None:
        """Lets the socket go."""
        self._sent.close()
        super().close()


def _answer(connection: Any, *, method: str, end: float) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_Timely(connection, end), method=method)  # type: ignore[arg-type]


def _read(response: http.client.HTTPResponse) -> bytes:
    """All of an answer; one without an end is given up."""
    content = bytearray()
    while some := response.read1(1 << 16):
        content += some
        if len(content) > LARGEST_ANSWER:
            raise ServingError("INTERNAL", f"The answer has more than {LARGEST_ANSWER:,} bytes.")
    response.close()  # The next request uses the connection.
    return bytes(content)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode("ascii")}
    return value


def _without_base64(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_base64(item) for item in value]
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value
