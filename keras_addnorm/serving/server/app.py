"""A running server: ports, the watch for new versions, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import time
from pathlib import Path
from typing import Any

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.grpc_api import make_grpc_server
from keras_addnorm.serving.server.health import Health
from keras_addnorm.serving.server.listening import address, bracketed, listen, web_server
from keras_addnorm.serving.server.metrics import Metrics
from keras_addnorm.serving.server.own_process import own_process
from keras_addnorm.serving.server.rest import make_app
from keras_addnorm.serving.server.scheduler import Scheduler
from keras_addnorm.serving.server.served_versions import Versions, give_memory_back
from keras_addnorm.serving.server.service import Service
from keras_addnorm.serving.server.settings import Settings
from keras_addnorm.serving.versions import existing_versions

_log = logging.getLogger(__name__)
_LAST_TASKS_SECONDS = 2.0
# Seconds after which free memory is given back to the system, which takes milliseconds.
_GIVING_BACK = 30.0


class Server:
    """Serves a folder of versions over REST and gRPC.

    Args:
        settings: The folder, the addresses and the limits.

    Attributes:
        port: The port of REST, once it listens.
        grpc_port: The port of gRPC, once it listens; `None` without gRPC.
        service: Answers the requests of both protocols.
        ready: Set when the first version is served.

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
        self.ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT, and then until the requests in flight are answered.

        Raises:
            OSError: If a port is taken.
            ServingError: If no version can be loaded.
        """
        with own_process():
            asyncio.run(self._serve_to_the_end())

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
        listener = listen(self.settings.host, self.settings.port)
        self.port = listener.getsockname()[1]
        web = web_server(make_app(self.service), self.settings)
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
        versions, given_back = self.service.versions, time.monotonic()
        while True:
            try:
                await asyncio.to_thread(versions.refresh)
            except OSError:  # files may appear and disappear while the folder is read
                _log.exception("Could not read '%s'.", self.settings.directory)
            if not self.ready.is_set():
                self._announce(versions)
                health.serve()
            await asyncio.sleep(self.settings.poll_seconds)
            # Where large requests follow each other without a pause, it is never empty.
            if self.service.held.was_emptied() or time.monotonic() - given_back > _GIVING_BACK:
                await asyncio.to_thread(give_memory_back)
                given_back = time.monotonic()

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
        self.ready.set()
        _log.info("Ready: %s", self._url)
        if self.grpc_port is not None:
            _log.info("Ready: gRPC at %s:%d", self.settings.host, self.grpc_port)

    @property
    def _url(self) -> str:
        return address(self.settings.host, self.port)

    def _grpc_server(self, health: Health) -> Any:
        if self.settings.grpc_port is None:
            return None
        server = make_grpc_server(self.service, health)
        address = f"{bracketed(self.settings.host)}:{self.settings.grpc_port}"
        try:
            self.grpc_port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"Cannot listen at {address} for gRPC: {error}") from error
        return server


def _exports_below(directory: Path) -> str:
    """Names the folders of versions that a folder holds, for somebody who gave that one."""
    folders = sorted(path for path in Path(directory).glob("*") if path.is_dir())
    found = [f"'{path}'" for path in folders if existing_versions(path)]
    return f" Did you mean {' or '.join(found[:4])}?" if found else ""
