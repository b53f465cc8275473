"""Ports, and the web server behind one: what all servers of this package listen with."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from keras_addnorm.serving.server.allowed_hosts import AllowedHosts
from keras_addnorm.serving.server.connections import connection_class
from keras_addnorm.serving.server.settings import Settings


def listen(host: str, port: int) -> socket.socket:
    """Opens a port; 0 is any that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
        # Connections inherit TCP_NODELAY. Without it, the body of a response would wait 40 ms for
        # the client to acknowledge the headers. asyncio sets it only if the socket names its
        # protocol.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise OSError(
            f"Cannot listen at {bracketed(host)}:{port}: {error}. --port 0 takes any that is free."
        ) from error


def web_server(app: Any, settings: Settings) -> uvicorn.Server:
    """Makes the web server of an ASGI application; signals are left to its caller.

    It answers under its own names alone.
    """
    return _WebServer(
        uvicorn.Config(
            AllowedHosts(app, settings),
            http=connection_class(settings.send_timeout),
            # It would believe whoever says whom a request comes from.
            proxy_headers=False,
            ws="none",
            lifespan="off",
            log_config=None,
            # Below it is a line for each bad request, whose sender has its answer.
            log_level=logging.ERROR,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(settings.grace_seconds),
        )
    )


class _WebServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures nothing: the signals belong to the whole server."""
        yield


def address(host: str, port: int) -> str:
    """Returns the address of a page."""
    return f"http://{bracketed(host)}:{port}/"


def bracketed(host: str) -> str:
    """Returns a host as an address has it."""
    return f"[{host}]" if ":" in host else host
