"""JSON that others wrote: whatever is wrong with it, it is a `ValueError`."""

from __future__ import annotations

import json
from typing import Any


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
