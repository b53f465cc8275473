"""A server for exported models, with the APIs of TensorFlow Serving, and for pages with a model.

For development and small installations. It needs the extra `serve`.

Example:
    ```python
    from keras_addnorm.serving.server import Settings

    assert Settings("saved_models/mine", port=8600).host == "127.0.0.1"
    # Server(Settings(...)).run() serves until the process is told to stop.
    ```
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics.optional import require_extra
from keras_addnorm.serving.server.settings import Settings

if TYPE_CHECKING:
    from keras_addnorm.serving.server.app import Server
    from keras_addnorm.serving.server.page_server import PageServer, is_page
    from keras_addnorm.serving.server.start import running, server_of

__all__ = ["PageServer", "Server", "Settings", "is_page", "running", "server_of"]

_FILES = {
    "PageServer": "page_server",
    "Server": "app",
    "is_page": "page_server",
    "running": "start",
    "server_of": "start",
}

NEEDED = ("starlette", "uvicorn", "orjson", "prometheus_client", "grpc_health")
"""The packages of the extra, without which a server cannot start."""


def __getattr__(name: str) -> Any:
    # The settings are for the command line, too, which imports nothing heavy.
    if name in _FILES:
        require_extra("serve", "The server", *NEEDED)
        return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
