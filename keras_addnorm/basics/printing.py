"""What a terminal, a log or a message may show of texts that come from outside."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LONGEST_MESSAGE = 2000
_NAMES_SHOWN, _LONGEST_NAME = 12, 40
_START_OF_MESSAGE, _END_OF_MESSAGE = 1500, 400
# Control characters, halves of surrogate pairs, Unicode's line ends, and what turns the direction
# of all that follows.
_FOLLOWED = "\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{_FOLLOWED}]")
_CONTROL_WITHIN_LINES = re.compile(f"(?![\t\n])[{_FOLLOWED}]")


def printable(text: str) -> str:
    r"""Return a text with escapes for characters that a terminal would follow.

    Args:
        text: A text or the name of a file; its lines and tabs are escaped as well.

    Returns:
        The text to be shown.

    Example:
        >>> print(printable("a\tb\x1b[2J.tsv"))
        a\tb\x1b[2J.tsv
    """
    return _CONTROL.sub(_escaped, text)


def printable_lines(text: str) -> str:
    r"""Return a text with such escapes, whose lines and tabs stay.

    Args:
        text: Lines that are to be shown.

    Returns:
        The lines.

    Example:
        >>> print(printable_lines("a\n\x1b[2Jb"))
        a
        \x1b[2Jb
    """
    return _CONTROL_WITHIN_LINES.sub(_escaped, text)


def text_of(error: BaseException) -> str:
    r"""Return what another library says of a file from outside, to be part of a sentence.

    Args:
        error: Its error.

    Returns:
        Its text in one line, escaped and not too long.

    Example:
        >>> text_of(ValueError("no such type: \x0e\n"))
        'no such type: \\x0e'
    """
    return printable(shortened(str(error).strip()))


def shortened(text: str) -> str:
    """Return a message without its middle, if it is so long that nobody would read it.

    Args:
        text: A message, which may repeat a part of a file.

    Returns:
        Its beginning and its end, where it says what to do.

    Example:
        >>> len(shortened("x" * 10**6)) < 2000
        True
    """
    if len(text) <= _LONGEST_MESSAGE:
        return text
    start, end = text[:_START_OF_MESSAGE], text[-_END_OF_MESSAGE:]
    return f"{start} [... {len(text) - len(start) - len(end):,} characters ...] {end}"


def listed(names: Iterable[str]) -> str:
    """Return names in quotation marks, for a message: the first ones, and not at any length.

    Args:
        names: The names, which may come from a file.

    Returns:
        The list.

    Example:
        >>> listed(["en", "de"]), len(listed(map(str, range(1000)))) < 100
        ("'en', 'de'", True)
    """
    names = list(names)
    shown = [
        repr(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}...")
        for name in names[:_NAMES_SHOWN]
    ]
    more = len(names) - len(shown)
    return ", ".join(shown + [f"and {more:,} others"] * bool(more))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
