"""Which server a folder needs, and such a server in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from keras_addnorm.serving.server.page_server import PageServer, is_page
from keras_addnorm.serving.server.settings import Settings

if TYPE_CHECKING:
    from keras_addnorm.serving.server.app import Server


def server_of(settings: Settings) -> Server | PageServer:
    """Makes the server of a folder: of versions, or of a page that translates in the browser.

    Args:
        settings: The folder, the addresses and the limits.

    Returns:
        The server.

    Raises:
        FileNotFoundError: If the folder is neither.
    """
    if is_page(settings.directory):
        return PageServer(settings)
    # It brings TensorFlow, which a page does not need.
    from keras_addnorm.serving.server.app import Server

    return Server(settings)


@contextlib.contextmanager
def running(settings: Settings, *, timeout: float = 120.0) -> Iterator[Server | PageServer]:
    """Runs a server in a thread of this process.

    Args:
        settings: The folder, the addresses and the limits.
        timeout: Seconds that loading may take.

    Yields:
        The server, ready. It stops when the block ends.

    Raises:
        RuntimeError: If the server does not become ready.
    """
    server = server_of(settings)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            asyncio.run(server.serve())
        except BaseException as error:
            failures.append(error)
            server.ready.set()

    thread = threading.Thread(target=serve, name="serve", daemon=True)
    thread.start()
    try:
        is_ready = server.ready.wait(timeout)
        if failures or not is_ready:
            raise RuntimeError("The server has not started.") from next(iter(failures), None)
        yield server
    finally:
        server.stop()
        thread.join()
