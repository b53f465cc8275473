"""Text that others wrote: files, JSON, and the characters that mean nothing in any text."""

from __future__ import annotations

import codecs
import itertools
import json
import os
import unicodedata
from pathlib import Path
from typing import Any, Literal

from keras_addnorm.basics.argument_checks import to_file

# The mark of UTF-32 in little-endian order begins with that of UTF-16: it comes first.
_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_BYTES_OF_UTF_32 = 4
_LARGEST_FILE = 1 << 28  # bytes: vocabularies of a million pieces have less
_FIRST_PRINTABLE = 32
_NEARLY_ALL = 0.9
_LAST_LETTER = chr(0x3FFFF)  # beyond the planes that have letters
# What other codecs of Python would change.
_PLAIN = 'msgid "\\x41\\u0041 +AGE- ~{ xn--a-ega.xn--a-ega"'
_SHORT = 2000  # characters whose marks Python can put in order, by the square of their number
BYTES_LOOKED_AT = 4096
"""Bytes from the start of a file that tell its encoding."""
_NESTED, _DEEPEST = "it is nested too deeply", 100


def wide_encoding(start: bytes) -> str:
    r"""The encoding of a text whose characters have two or four bytes each.

    A byte order mark says it. Without one, zero bytes do: no text in UTF-8 has any.

    Args:
        start: The first bytes of a text.

    Returns:
        `UTF-16` or `UTF-32` with a mark, `UTF-16LE` and the like without one; empty for any other.

    Example:
        >>> from keras_addnorm.basics.text import wide_encoding
        >>> wide_encoding("A dog\n".encode("utf-16-be")), wide_encoding("A dog\n".encode())
        ('UTF-16BE', '')
    """
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            return name
    if b"\0" not in start or not start.strip(b"\0") or _is_utf_8(start):
        return ""
    for name in ("UTF-32LE", "UTF-32BE"):
        if len(start) >= _BYTES_OF_UTF_32 and _can_be(start, name, _LAST_LETTER):
            return name
    # With its bytes exchanged, a space or a line end is neither.
    spaces = {name: _spaces_and_letters(start, name) for name in ("UTF-16LE", "UTF-16BE")}
    best = max(spaces, key=lambda name: spaces[name])
    return best if any(spaces[best]) else ""


def _is_utf_8(start: bytes) -> bool:
    """Whether bytes with zeros among them are UTF-8 all the same, with a few stray ones."""
    if not _can_be(start, "UTF-8"):
        return False
    # Letters in UTF-16 are no UTF-8, or every second byte is one of a control character.
    halves = [start[place::2] for place in (0, 1)]
    is_of_controls = any(
        sum(byte < _FIRST_PRINTABLE for byte in half) >= _NEARLY_ALL * len(half) for half in halves
    )
    return not start.isascii() or not is_of_controls


def _can_be(start: bytes, encoding: str, last: str = chr(0x10FFFF)) -> bool:
    """Whether bytes can be decoded, but for a character at their end that is cut."""
    try:
        return max(codecs.getincrementaldecoder(encoding)().decode(start), default=last) <= last
    except UnicodeDecodeError:
        return False


def _spaces_and_letters(start: bytes, encoding: str) -> tuple[int, int]:
    """How many characters are spaces and line ends, and how many are letters of ASCII."""
    text = start.decode(encoding, "replace")
    return sum(map(text.count, " \t\r\n")), sum(one.isascii() and one.isalpha() for one in text)


def is_encoding_of_text(name: str) -> bool:
    """Whether a name is one of an encoding in which ASCII is ASCII, as it is in text files.

    Python knows others by name, such as `idna` and `unicode_escape`, which turn text into other
    text.

    Args:
        name: The name that a file gives.

    Returns:
        Whether the file can be read so.

    Example:
        >>> from keras_addnorm.basics.text import is_encoding_of_text
        >>> [is_encoding_of_text(name) for name in ("latin-1", "cp932", "rot13", "klingon")]
        [True, True, False, False]
    """
    try:
        return _PLAIN.encode().decode(name) == _PLAIN
    except (LookupError, ValueError):
        return False


def how_to_convert(encoding: str, file: str = "") -> str:
    """The command that helps with another encoding, as a sentence; of stdin, as a pipe."""
    command = f"iconv -f {encoding} -t UTF-8"
    if not file:
        return f"Convert it on its way here: {command} | keras-addnorm ..."
    return f"Convert it: {command} '{file}' > new-file"


def read_text(path: str | os.PathLike[str]) -> str:
    """Reads a text file in UTF-8, with any of the three line ends."""
    text = decoded(path, to_file(path).read_bytes())
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decoded(path: str | os.PathLike[str], content: bytes) -> str:
    """Decodes the content of a file in UTF-8; a `ValueError` names the file and its encoding."""
    if encoding := wide_encoding(content[:BYTES_LOOKED_AT]):
        raise ValueError(
            f"'{path}' is no text in UTF-8: it is {encoding}. {how_to_convert(encoding, str(path))}"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"'{path}' is no text in UTF-8: {error.reason} at byte {error.start}. Copy or download "
            "it again."
        ) from error


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
        found = json.loads(content)
    except RecursionError as error:
        raise ValueError(_NESTED) from error
    # What was just read so would be too deep for all that follows, such as a message that shows it.
    level = [found]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, list | dict)
        ]
        if not level:
            return found
    raise ValueError(_NESTED)


def read_json(path: Path) -> Any:
    """Reads a file of JSON in UTF-8; a `ValueError` names one that is none, or is too large."""
    require_moderate(path)
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise ValueError(f"'{path}' is no JSON: {error}. Download it again.") from error


def require_moderate(path: Path) -> None:
    """Raises a `ValueError` for a file larger than any settings or vocabulary."""
    size = to_file(path).stat().st_size
    if size > _LARGEST_FILE:
        raise ValueError(
            f"'{path}' is too large for what its name says. Expected at most {_LARGEST_FILE} "
            f"bytes. Received: {size}. Download it again."
        )


def encodable_text(text: str) -> str:
    """Return a text without halves of surrogate pairs, which UTF-8 cannot hold.

    Two halves that stand together are the character that they make, as in UTF-16.
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


def normalized(form: Literal["NFC", "NFKC"], text: str) -> str:
    r"""Return the Unicode form of a text, as `unicodedata.normalize` does.

    Python puts the marks behind a letter in order by comparing each with those before it: a text of
    1 MB in which nothing else stands would take minutes. Here they are sorted before.

    Args:
        form: `"NFC"` or `"NFKC"`.
        text: Any text.

    Returns:
        The text in that form.

    Example:
        >>> normalized("NFKC", "\ufb01ne") == "fine", normalized("NFC", "e\u0301") == "\xe9"
        (True, True)
    """
    if len(text) <= _SHORT:
        return unicodedata.normalize(form, text)
    decomposed: Literal["NFD", "NFKD"] = "NFKD" if form == "NFKC" else "NFD"
    parts = {ord(one): unicodedata.normalize(decomposed, one) for one in set(text)}
    marks = itertools.groupby(text.translate(parts), lambda one: unicodedata.combining(one) > 0)
    ordered = (
        "".join(sorted(some, key=unicodedata.combining) if are_marks else some)
        for are_marks, some in marks
    )
    return unicodedata.normalize(form, "".join(ordered))
