"""What no text means: zero characters (NUL), halves of surrogate pairs; and control characters."""

from __future__ import annotations

import unicodedata


def encodable_text(text: str) -> str:
    """Return a text without halves of surrogate pairs, which UTF-8 cannot hold.

    Two halves that stand together are the character that they make, as in UTF-16.

    Args:
        text: Any text.

    Returns:
        A text that can be encoded.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return text


def meaningful_text(text: str) -> str:
    r"""Return a text without NULs and halves of surrogate pairs, which mean nothing in any text.

    Args:
        text: Any text.

    Returns:
        The text.

    Example:
        >>> meaningful_text("a\0 house\ud800")
        'a house'
    """
    return encodable_text(text).replace("\0", "")


def printable(text: str) -> str:
    r"""Return a text with escapes for control characters, which a terminal would follow.

    Args:
        text: A text or the name of a file; its lines and tabs are escaped as well.

    Returns:
        The text to be shown.

    Example:
        >>> print(printable("a\tb\x1b[2J.tsv"))
        a\tb\x1b[2J.tsv
    """
    return "".join(
        one.encode("unicode_escape").decode() if unicodedata.category(one) in ("Cc", "Cs") else one
        for one in text
    )
