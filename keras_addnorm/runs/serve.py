"""Serves an exported model until the process is told to stop."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.fields import Setting, list_settings
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server import Settings


def serve_settings() -> list[Setting]:
    """Returns the settings of a server besides its folder."""
    return list(list_settings(Settings, "server."))


def serve(directory: str | Path, **settings: Any) -> None:
    """Serves a folder of versions, with `settings` that are fields of the server's `Settings`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # It says twice that a session is the old way of loading a model; see `LoadedVersion`.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with as_user_errors():
        from keras_addnorm.serving.server import Server
    try:
        Server(Settings(to_path(directory), **settings)).run()
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{error}{_of_a_run(to_path(directory))}") from error
    except (OSError, ValueError, ServingError) as error:
        raise UserError(str(error)) from error


def _of_a_run(directory: Path) -> str:
    """What to do first where a run directory is to be served."""
    if not RunDirectory(directory).config.exists():
        return ""
    export = f"keras-addnorm export {directory} saved_models/{directory.resolve().name}"
    return f" This is a run: `{export}` makes what can be served."
