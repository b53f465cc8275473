"""Serves an exported model, or a page with one, until the process is told to stop."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.basics.fields import Setting, list_settings
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.process_startup import import_tensorflow_quietly
from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server import Settings

_OF_A_PAGE = ("host", "allowed_hosts", "port", "verify")


def serve_settings() -> list[Setting]:
    """Returns the settings of a server besides its folder."""
    return list(list_settings(Settings, "server."))


def serve(directory: str | Path, **settings: Any) -> None:
    """Serves a folder of versions, or a page that translates in the browser.

    Args:
        directory: The folder.
        **settings: Fields of the server's `Settings`; of a page `host`, `allowed_hosts`,
            `port` and `verify` alone.

    Raises:
        UserError: If there is nothing to serve, or a setting is wrong.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    directory = to_path(directory)
    with as_user_errors():
        from keras_addnorm.serving.server import is_page, server_of
    if is_page(directory):
        _refuse_others(settings)
    else:
        import_tensorflow_quietly()
        # It says twice that a session is the old way of loading a model; see `LoadedVersion`.
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
    try:
        server_of(Settings(directory, **settings)).run()
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{error}{_instead_of(directory)}") from error
    except (OSError, ValueError, ServingError) as error:
        raise UserError(str(error)) from error


def _refuse_others(settings: Mapping[str, Any]) -> None:
    if others := [name for name in settings if name not in _OF_A_PAGE]:
        raise ArgumentError(
            "This folder is a page that translates in the browser; its server has files alone.",
            " or ".join(f"`{name}`" for name in _OF_A_PAGE),
            **{name: settings[name] for name in others},
        )


def _instead_of(directory: Path) -> str:
    """What to do first where a run, or a model of Bergamot's engine, is to be served."""
    if (directory / "model.bin").is_file():
        return (
            " This is a model for Bergamot's engine without a page: export it with `--engine "
            "node_modules/@browsermt/bergamot-translator`."
        )
    if not RunDirectory(directory).config.exists():
        return ""
    export = f"keras-addnorm export {directory} saved_models/{directory.resolve().name}"
    return f" This is a run: `{export}` makes what can be served."
