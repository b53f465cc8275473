"""A running server: ports, the watch for new versions, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.connections import connection_class
from keras_addnorm.serving.server.grpc_api import make_grpc_server
from keras_addnorm.serving.server.health import Health
from keras_addnorm.serving.server.metrics import Metrics
from keras_addnorm.serving.server.rest import make_app
from keras_addnorm.serving.server.scheduler import Scheduler
from keras_addnorm.serving.server.served_versions import Versions, give_memory_back
from keras_addnorm.serving.server.service import Service
from keras_addnorm.serving.server.settings import Settings
from keras_addnorm.serving.versions import existing_versions

_log = logging.getLogger(__name__)
_LAST_TASKS_SECONDS = 2.0
# Seconds after which Python lets another thread run. The event loop needs a millisecond and waits
# for that long whenever another thread converts something large; 5 ms are usual.
_SWITCH_SECONDS = 0.001


class Server:
    """Serves a folder of versions over REST and gRPC.

    Args:
        settings: The folder, the addresses and the limits.

    Attributes:
        port: The port of REST, once it listens.
        grpc_port: The port of gRPC, once it listens; `None` without gRPC.
        service: Answers the requests of both protocols.

    Raises:
        FileNotFoundError: If there is no version to serve.
    """

    def __init__(self, settings: Settings) -> None:
        if not existing_versions(settings.directory):
            raise FileNotFoundError(
                f"There is no exported model in '{settings.directory}'. Expected folders named by "
                f"a number, such as '{settings.directory / '1'}', as an export has them."
                f"{_exports_below(settings.directory)}"
            )
        self.settings = settings
        self.port = settings.port
        self.grpc_port = settings.grpc_port
        metrics = Metrics()
        versions = Versions(settings)
        self._scheduler = Scheduler(settings, metrics)
        self.service = Service(settings, versions, self._scheduler, metrics)
        metrics.version.set_function(lambda: versions.current.number if versions.current else 0)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT, and then until the requests in flight are answered.

        Raises:
            OSError: If a port is taken.
            ServingError: If no version can be loaded.
        """
        usual = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            asyncio.run(self._serve_to_the_end())
        finally:
            sys.setswitchinterval(usual)

    async def _serve_to_the_end(self) -> None:
        await self.serve(on_signals=(signal.SIGTERM, signal.SIGINT))
        # gRPC reports that it has stopped before its tasks have ended; cancelled, they log errors.
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=_LAST_TASKS_SECONDS)

    async def serve(self, on_signals: tuple[signal.Signals, ...] = ()) -> None:
        """Serves until `stop` is called.

        Args:
            on_signals: Signals of the process that also stop the server.

        Raises:
            OSError: If a port is taken.
            ServingError: If no version can be loaded.
        """
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        for number in on_signals:
            self._loop.add_signal_handler(number, self._stopping.set)
        listener = _listen(self.settings.host, self.settings.port)
        self.port = listener.getsockname()[1]
        web = _WebServer(self._web_config())
        health = Health()
        try:
            rpc = self._grpc_server(health)
        except OSError:
            listener.close()
            raise
        if rpc is not None:
            await rpc.start()
        web_task = asyncio.create_task(web.serve([listener]))
        _log.info("Will answer at %s, once a version is loaded.", self._url)
        try:
            await self._watch_until_stopped(health)
        finally:
            self.service.is_stopping = True
            health.stop()
            web.should_exit = True
            # Both protocols finish their requests at the same time.
            stops = [web_task] if rpc is None else [web_task, rpc.stop(self.settings.grace_seconds)]
            await asyncio.gather(*stops)
            await self._scheduler.close()
            await self.service.conversions.close()
            _log.info("Stopped.")

    def stop(self) -> None:
        """Starts the shutdown; may be called from any thread."""
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
                self._loop.call_soon_threadsafe(self._stopping.set)

    def wait_until_ready(self, timeout: float) -> bool:
        """Waits, in another thread, until the first version is served.

        Args:
            timeout: The longest time to wait, in seconds.

        Returns:
            Whether a version is served.
        """
        return self._ready.wait(timeout)

    async def _watch_until_stopped(self, health: Health) -> None:
        assert self._stopping is not None
        stopped = asyncio.create_task(self._stopping.wait())
        watching = asyncio.create_task(self._watch(health))
        await asyncio.wait({stopped, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            stopped.cancel()
            watching.result()  # raises: the watch ends only by an error
        watching.cancel()  # the shutdown does not wait for a version that is being loaded

    async def _watch(self, health: Health) -> None:
        versions = self.service.versions
        while True:
            try:
                await asyncio.to_thread(versions.refresh)
            except OSError:  # files may appear and disappear while the folder is read
                _log.exception("Could not read '%s'.", self.settings.directory)
            if not self._ready.is_set():
                self._announce(versions)
                health.serve()
            await asyncio.sleep(self.settings.poll_seconds)
            if self.service.held.was_emptied():
                await asyncio.to_thread(give_memory_back)

    def _announce(self, versions: Versions) -> None:
        if versions.current is None:
            raise ServingError(
                "FAILED_PRECONDITION",
                f"No version in '{self.settings.directory}' can be loaded: "
                + "; ".join(
                    f"{state.version}: {state.error_message}"
                    for state in versions.states(versions.name)
                ),
            )
        self._ready.set()
        _log.info("Ready: %s", self._url)
        if self.grpc_port is not None:
            _log.info("Ready: gRPC at %s:%d", self.settings.host, self.grpc_port)

    @property
    def _url(self) -> str:
        return f"http://{_bracketed(self.settings.host)}:{self.port}/"

    def _web_config(self) -> uvicorn.Config:
        return uvicorn.Config(
            make_app(self.service),
            http=connection_class(self.settings.send_timeout),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(self.settings.grace_seconds),
        )

    def _grpc_server(self, health: Health) -> Any:
        if self.settings.grpc_port is None:
            return None
        server = make_grpc_server(self.service, health)
        address = f"{_bracketed(self.settings.host)}:{self.settings.grpc_port}"
        try:
            self.grpc_port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"Cannot listen at {address} for gRPC: {error}") from error
        return server


class _WebServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures nothing: the signals belong to the whole server."""
        yield


@contextlib.contextmanager
def running(settings: Settings, *, timeout: float = 120.0) -> Iterator[Server]:
    """Runs a server in a thread of this process.

    Args:
        settings: The folder, the addresses and the limits.
        timeout: Seconds that loading may take.

    Yields:
        The server, ready. It stops when the block ends.

    Raises:
        RuntimeError: If the server does not become ready.
    """
    server = Server(settings)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            asyncio.run(server.serve())
        except BaseException as error:
            failures.append(error)
            server._ready.set()

    thread = threading.Thread(target=serve, name="serve", daemon=True)
    thread.start()
    try:
        is_ready = server.wait_until_ready(timeout)
        if failures or not is_ready:
            raise RuntimeError("The server has not started.") from next(iter(failures), None)
        yield server
    finally:
        server.stop()
        thread.join()


def _listen(host: str, port: int) -> socket.socket:
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
            f"Cannot listen at {_bracketed(host)}:{port}: {error}. --port 0 takes any that is free."
        ) from error


def _exports_below(directory: Path) -> str:
    """Names the folders of versions that a folder holds, for somebody who gave that one."""
    folders = sorted(path for path in Path(directory).glob("*") if path.is_dir())
    found = [f"'{path}'" for path in folders if existing_versions(path)]
    return f" Did you mean {' or '.join(found[:4])}?" if found else ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
