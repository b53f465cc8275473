"""What no text means: zero characters (NUL), and halves of surrogate pairs."""

from __future__ import annotations


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
