"""HTTP connections: uvicorn's, and what it leaves open."""

from __future__ import annotations

import asyncio
import json
import logging

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_log = logging.getLogger(__name__)
# Seconds after which a client that has said all is asked whether it is still there.
_QUESTION_SECONDS = 1.0
# Seconds that a client has for the head of a request, which comes before its body.
_HEAD_SECONDS = 10.0
_QUESTION = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(H11Protocol):
    """A connection that answers a client who has said all, and drops one who does not listen.

    - A client may close its sending half after a whole request. uvicorn would close the connection.
      One that has gone altogether sends the same; only what is written to it tells. So it is sent
      "100 Continue", which clients of HTTP/1.1 pass over, until its answer begins.
    - A client that sends no request, or a byte of one now and then, would stay for good.
    - Bytes that are no request get an error in JSON, like every other. uvicorn would send a text.
    - A client that does not read fills the buffer, and its answer would stay in memory for good.

    Attributes:
        send_timeout: Seconds that a client may take to read what is in the buffer.
    """

    send_timeout: float = 10.0

    _is_half_closed = False
    _giving_up: asyncio.TimerHandle | None = None
    _asking: asyncio.TimerHandle | None = None
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        self._expect_request()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection open while a whole request is to be answered."""
        self._is_half_closed = True
        self._ask_later()
        return self._is_answering

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no request, as all refusals are written."""
        body = json.dumps({"error": msg}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    @property
    def _is_answering(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def on_response_complete(self) -> None:
        """Goes on with the next request, if one has come already or can still come."""
        super().on_response_complete()
        if self._is_half_closed and not self._is_answering and not self.transport.is_closing():
            self.transport.close()
        self._expect_the_end()
        self._expect_request()

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection on which nothing comes."""
        super().timeout_keep_alive_handler()
        self._expect_the_end()

    def _expect_the_end(self) -> None:
        # A connection that is closed stays until its buffer is empty.
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._expect_reading()

    def pause_writing(self) -> None:
        """The buffer is full."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._stop_expecting()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._stop_expecting()
        for timer in (self._asking, self._waiting):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _expect_reading(self) -> None:
        if self._giving_up is None:
            self._giving_up = self.loop.call_later(self.send_timeout, self._give_up)

    def _stop_expecting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _ask_later(self) -> None:
        self._asking = self.loop.call_later(_QUESTION_SECONDS, self._ask)

    def _ask(self) -> None:
        cycle = self.cycle
        if not self._is_answering or cycle.response_started or self.transport.is_closing():
            return
        if cycle.scope["http_version"] == "1.1":  # Others do not know what it means.
            self.transport.write(_QUESTION)
            self._ask_later()

    def _expect_request(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self.loop.call_later(_HEAD_SECONDS, self._wait_no_longer)

    def _wait_no_longer(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def _give_up(self) -> None:
        _log.info("Dropped %s, who did not read the answer.", self.client)
        self.transport.abort()


def connection_class(send_timeout: float) -> type[H11Protocol]:
    """The class of connections with a time limit, for uvicorn's option `http`."""
    return type("Connection", (Connection,), {"send_timeout": send_timeout})
