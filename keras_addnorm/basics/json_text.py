"""JSON that others wrote: whatever is wrong with it, it is a `ValueError`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from keras_addnorm.basics.text_file import read_text

_LONGEST = 1 << 28  # bytes of a file: vocabularies of a million pieces have less


def parse_json(content: str | bytes) -> Any:
    """Reads JSON, as `json.loads` does.

    Args:
        content: The text, or its bytes.

    Returns:
        What it says.

    Raises:
        ValueError: If it is no JSON, or is nested too deeply to be read.

    Example:
        >>> parse_json('{"a": [1, 2]}')
        {'a': [1, 2]}
        >>> try:
        ...     parse_json("[" * 100_000)
        ... except ValueError as error:
        ...     print(error)
        it is nested too deeply
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_json(path: Path) -> Any:
    """Reads a file of JSON in UTF-8.

    Args:
        path: The file.

    Returns:
        What it says.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no JSON, or larger than 256 MiB; the message names it.
    """
    require_moderate(path)
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise ValueError(f"'{path}' is no JSON: {error}. Download it again.") from error


def require_moderate(path: Path) -> None:
    """Refuses a file that no settings and no vocabulary are as large as, before it is read.

    Args:
        path: The file.

    Raises:
        OSError: If there is no such file.
        ValueError: If it has more than 256 MiB.
    """
    size = path.stat().st_size
    if size > _LONGEST:
        raise ValueError(
            f"'{path}' is too large for what its name says. Expected at most {_LONGEST} bytes. "
            f"Received: {size}. Download it again."
        )
