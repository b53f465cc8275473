"""Text files that others wrote."""

from __future__ import annotations

import os

from keras_addnorm.basics.paths import to_path


def read_text(path: str | os.PathLike[str]) -> str:
    """Reads a text file in UTF-8, with any of the three line ends.

    Args:
        path: The file.

    Returns:
        The text.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is in another encoding, or no text; the message names it.
    """
    try:
        return to_path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from error


def not_utf8(path: str | os.PathLike[str], error: UnicodeDecodeError) -> ValueError:
    """The error of a file that is no text in UTF-8."""
    return ValueError(
        f"'{path}' is no text in UTF-8: {error.reason} at byte {error.start}. Copy or download it "
        "again."
    )
