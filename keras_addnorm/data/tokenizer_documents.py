"""The content of a tokenizer's file, where it is more than a SentencePiece model."""

from __future__ import annotations

import base64
import json
from typing import Any

from keras_addnorm.basics.text import parse_json

_DAMAGED = "The file is damaged. Expected what save wrote. Save the tokenizer again."


def document(name: str, fields: dict[str, Any]) -> bytes:
    """The content of a file with plain values."""
    return json.dumps({"name": name, **fields}, ensure_ascii=False).encode("utf-8")


def read_document(content: bytes) -> dict[str, Any] | None:
    """The name and the values of a file; `None` if it is none with values.

    Args:
        content: The file's content.

    Returns:
        What `document` was given, with the name as "name".

    Raises:
        ValueError: If the file is damaged.
    """
    # No SentencePiece model begins so.
    if not content.startswith(b"{"):
        return None
    try:
        values = parse_json(content)
    except ValueError as error:
        raise ValueError(_DAMAGED) from error
    if not isinstance(values, dict) or "name" not in values:
        raise ValueError(_DAMAGED)
    return values


def to_text(content: bytes) -> str:
    """Bytes as a string of a document."""
    return base64.b64encode(content).decode("ascii")


def from_text(text: str) -> bytes:
    """The bytes that `to_text` was given."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(_DAMAGED) from error
