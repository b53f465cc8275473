"""Paths that users give: an empty one is refused."""

from __future__ import annotations

import os
from pathlib import Path

from keras_addnorm.basics.errors import ArgumentError


def to_path(path: str | os.PathLike[str]) -> Path:
    """Return a path that a user has given.

    Args:
        path: The path of a file or a folder.

    Returns:
        The path.

    Raises:
        ValueError: If it is empty. `Path("")` is the current folder, which nobody has named.

    Example:
        >>> from keras_addnorm.basics.paths import to_path
        >>> to_path("runs/mine").name
        'mine'
    """
    if os.fspath(path) == "":
        raise ArgumentError(
            "A path is empty.", "the name of a file or a folder, '.' for the current one", value=""
        )
    return Path(path)
