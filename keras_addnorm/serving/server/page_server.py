"""Serves a page that translates in the browser: the files of its folder, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from keras_addnorm.basics.integrity import IN_EXPORTS, Manifest
from keras_addnorm.basics.web_page import IN_BROWSER_POLICY, security_headers
from keras_addnorm.serving.server.listening import address, listen, web_server
from keras_addnorm.serving.server.own_process import own_process
from keras_addnorm.serving.server.settings import Settings

_log = logging.getLogger(__name__)
_INDEX = "index.html"
_PARTS = (_INDEX, "service_worker.js", "model.bin")
# What a machine's own table of types says of these is not always what browsers expect.
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".wasm": "application/wasm",
    ".yml": "application/yaml",
}


def is_page(directory: Path) -> bool:
    """Tells whether a folder is a page that translates in the browser, as an export writes it."""
    return all((directory / name).is_file() for name in _PARTS)


class PageServer:
    """Serves the folder of a page that translates in the browser.

    Its files are looked up once, at the start: names in requests are compared with theirs, and
    never become paths.

    Args:
        settings: The folder and the address.

    Attributes:
        port: The port, once it listens.
        ready: Set when it listens.

    Raises:
        DamagedFileError: If a file is not what was exported.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.verify:
            remedy = "Copy the folder again from where it is whole, or export it again."
            Manifest(settings.directory, IN_EXPORTS).check(settings.directory, remedy)
        self.settings = settings
        self.port = settings.port
        self.ready = threading.Event()
        self._files = _files_in(settings.directory)
        app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET"])])
        self._web = web_server(app, settings)

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT.

        Raises:
            OSError: If the port is taken.
        """
        with own_process():
            asyncio.run(self.serve(on_signals=(signal.SIGTERM, signal.SIGINT)))

    async def serve(self, on_signals: tuple[signal.Signals, ...] = ()) -> None:
        """Serves until `stop` is called.

        Args:
            on_signals: Signals of the process that also stop the server.

        Raises:
            OSError: If the port is taken.
        """
        listener = listen(self.settings.host, self.settings.port)
        self.port = listener.getsockname()[1]
        for number in on_signals:
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        _log.info("Ready: %s", address(self.settings.host, self.port))
        self.ready.set()
        await self._web.serve([listener])
        _log.info("Stopped.")

    def stop(self) -> None:
        """Starts the shutdown; may be called from any thread."""
        self._web.should_exit = True

    async def _answer(self, request: Request) -> Response:
        name = request.path_params["path"] or _INDEX
        path = self._files.get(name)
        headers = security_headers(IN_BROWSER_POLICY)
        # Since the start a file, or a folder above it, may have become a link to elsewhere.
        if path is None or path.resolve() != path or not path.is_file():
            return PlainTextResponse("There is no such file.", 404, headers=headers)
        kind = _TYPES.get(path.suffix, "application/octet-stream")
        answer = FileResponse(path, headers=headers, media_type=kind, stat_result=path.stat())
        tag = answer.headers["etag"]
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={**headers, "etag": tag})
        return answer


def _files_in(folder: Path) -> dict[str, Path]:
    """Return the files of a folder, by the names that requests have for them."""
    root = folder.resolve()
    found = {path.relative_to(folder): path.resolve() for path in folder.rglob("*")}
    return {
        name.as_posix(): path
        for name, path in found.items()
        if path.is_file()
        and path.is_relative_to(root)
        and not any(part.startswith(".") for part in name.parts)
    }
