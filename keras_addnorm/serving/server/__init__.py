"""A server for exported models, with the APIs of TensorFlow Serving.

For development and small installations. It needs the extra `serve`:
`pip install 'keras-addnorm[serve]'`.

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
    from keras_addnorm.serving.server.app import Server, running

__all__ = ["Server", "Settings", "running"]


def __getattr__(name: str) -> Any:
    # The settings are for the command line, too, which imports nothing heavy.
    if name in __all__:
        needed = ("starlette", "uvicorn", "orjson", "prometheus_client", "grpc_health")
        require_extra("serve", "The server", *needed)
        return getattr(importlib.import_module(f"{__name__}.app"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
