"""The names under which browsers may reach a server: checks the headers Host and Origin.

A page from elsewhere can call a server on the machine of its reader in two ways. It sends a request
across origins, whose `Origin` says so. Or its own name is made to point at this machine after it
was loaded (DNS rebinding): the browser then takes both for one origin, and only `Host` has the name
that it was loaded from.

Reference: RFC 9110, sections 7.2 and 4.2.3; RFC 6454, section 7.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from keras_addnorm.serving.server.settings import ANY_HOST, Settings

# What stands before a port: a name, an address, or an address of IPv6 in brackets.
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,255})(?::[0-9]{0,5})?", re.I)
_ORIGIN = re.compile(r"https?://(?P<authority>[^/@?#]+)", re.I)
_SHOWN = 80

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclasses.dataclass(frozen=True)
class _Refusal:
    status: int
    error: str


class AllowedHosts:
    """Answers requests that came under an allowed name, and refuses others in a sentence.

    Every request has to name one host. Allowed are

    - `allowed_hosts`, the names that a proxy or a network has for the server;
    - `host`, where the server listens, and `localhost`;
    - on a loopback address: the loopback addresses; otherwise: every address, since only a name
      can be made to point elsewhere.

    A request from a page, which has an `Origin`, has to come from the host that it is sent to, or
    from one of these names; with `cors` pages of all origins may send requests. Ports are not
    compared: proxies and containers have others.

    Args:
        app: The application.
        settings: The names.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._cors = settings.cors
        given = [*settings.allowed_hosts, settings.host, "localhost"]
        self._hosts = {_host_of(name) or name for name in given if not name.startswith("*")}
        self._suffixes = tuple(name[1:].lower() for name in given if name.startswith("*."))
        self._is_any = ANY_HOST in settings.allowed_hosts
        self._is_local = _is_loopback(_host_of(settings.host))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Checks a request, and passes it on."""
        refusal = None if self._is_any else self._refusal(scope["headers"])
        if refusal is None:
            await self._app(scope, receive, send)
            return
        answer = JSONResponse(
            {"error": refusal.error}, refusal.status, headers={"connection": "close"}
        )
        await answer(scope, receive, send)

    def _refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> _Refusal | None:
        hosts, origins = (
            [value.decode("latin-1").strip() for key, value in headers if key == name]
            for name in (b"host", b"origin")
        )
        host = _host_of(hosts[0]) if len(hosts) == 1 else None
        if host is None:
            return _Refusal(
                400,
                f"Expected one header Host, with a name or an address; received {_shown(hosts)}.",
            )
        if not (self._is_known(host) or (not self._is_local and _is_address(host))):
            return _Refusal(
                403,
                f"This server does not answer under the name {_shown(hosts)} (header Host). If it "
                "is the server's own, start it with --allowed-hosts NAME.",
            )
        if not origins or self._cors:
            return None
        page = _ORIGIN.fullmatch(origins[0]) if len(origins) == 1 else None
        origin = None if page is None else _host_of(page["authority"])
        if origin is None or not (origin == host or self._is_known(origin)):
            return _Refusal(
                403,
                f"This server does not answer pages of {_shown(origins)} (header Origin). If it is "
                "the server's own name, start it with --allowed-hosts NAME; to let every page call "
                "a model, with --cors.",
            )
        return None

    def _is_known(self, host: str) -> bool:
        return (
            host in self._hosts
            or host.endswith(self._suffixes)
            or (self._is_local and _is_loopback(host))
        )


def _host_of(authority: str) -> str | None:
    """The host of `host:port` in one spelling; None if it is none."""
    if ":" in authority and _as_address(authority) is not None:  # of IPv6, as --host has it
        return str(_as_address(authority))
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    host = found["host"].lower().removesuffix(".")
    address = _as_address(host.strip("[]"))
    if address is not None:
        return str(address)
    return None if not host or host.startswith("[") else host


def _as_address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_address(host: str) -> bool:
    return _as_address(host) is not None


def _is_loopback(host: str | None) -> bool:
    if host is None:
        return False
    address = _as_address(host)
    return host == "localhost" if address is None else address.is_loopback


def _shown(values: list[str]) -> str:
    """What came, in a few plain characters."""
    text = ", ".join(values)
    return "none" if not values else ascii(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
