"""Where a command may write what it was asked for: at no place of a run or an export."""

from __future__ import annotations

import os
from pathlib import Path

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.atomic import is_device
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.integrity import IN_EXPORTS, NAME
from keras_addnorm.runs.directory import RunDirectory, places
from keras_addnorm.runs.errors import as_user_errors


def require_writable(path: str | Path) -> None:
    """Raises a `UserError` unless a file or a new folder can be written at a path.

    The files of a run or an export are no place for what another command writes.
    """
    path = to_path(path)
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder. Expected the name of a file.")
    if is_device(path) and os.access(path, os.W_OK):
        return
    require_outside_models(path)
    with as_user_errors():
        path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(
            f"The folder {str(path.parent)!r} cannot be written to. Expected one that this user "
            "may make files in. Change its permissions, or choose another."
        )


def require_new_folder(path: str | Path) -> None:
    """Raises a `UserError` unless a folder can be made at a path, where there is nothing yet."""
    if os.path.lexists(to_path(path)):
        raise UserError(f"{str(path)!r} exists. Expected the name of a new folder.")
    require_writable(path)


def require_outside_models(path: str | Path) -> None:
    """Raises a `UserError` for a path that is kept for a file of a run or of an export."""
    path = to_path(path)
    if (owner := _owner_of(path)) is not None:
        raise UserError(
            f"{str(path)!r} is kept for a file of the model in {str(owner)!r}. Expected a place "
            "for what this command writes. Choose another name."
        )


def _owner_of(path: Path) -> Path | None:
    """The run or the export that a path belongs to; what a link leads to is not written to."""
    final = Path(os.path.realpath(path.parent), path.name)
    for folder in final.parents:
        is_of_run = final.relative_to(folder).parts[0] in {*places().values(), NAME}
        if (is_of_run and RunDirectory(folder).config.exists()) or (folder / IN_EXPORTS).exists():
            return folder
    return None
