"""Reads a list of JSON value by value, so that it need not be in the memory as a whole."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any

_WHITE = " \t\n\r"
_BEHIND_A_VALUE = tuple(f"{_WHITE},]")
_NEAR_THE_END = 64


class NotJsonError(ValueError):
    """A text is no list of JSON."""


class JsonValues:
    """The values of a list.

    Args:
        blocks: The text in UTF-8, a portion at a time.
        longest: The most characters of one value.
    """

    def __init__(self, blocks: Iterable[bytes], longest: int) -> None:
        self._blocks, self._longest = iter(blocks), longest
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        self._raw_decode = json.JSONDecoder().raw_decode
        self._text, self._place, self._lines_before = "", 0, 0

    def __iter__(self) -> Iterator[Any]:
        """Reads one value after the other.

        Yields:
            The values.

        Raises:
            NotJsonError: If it is no list, or too long a value is in it.
        """
        self._take("[")
        mark = self._next_character()
        if mark == "]":
            self._place += 1
        while mark != "]":
            yield self._value()
            mark = self._take(",", "]")
        if self._next_character():
            raise NotJsonError("Extra data behind the list")

    @property
    def line(self) -> int:
        """The line that is being read, from 1."""
        return 1 + self._lines_before + self._text.count("\n", 0, self._place)

    def _take(self, *expected: str) -> str:
        mark = self._next_character()
        if mark not in expected:
            raise NotJsonError(f"Expecting {' or '.join(map(repr, expected))}")
        self._place += 1
        return mark

    def _next_character(self) -> str:
        """The next one that is no white space; empty at the end."""
        while True:
            while self._place < len(self._text):
                if self._text[self._place] not in _WHITE:
                    return self._text[self._place]
                self._place += 1
            if not self._read():
                return ""

    def _value(self) -> Any:
        self._next_character()
        while True:
            try:
                value, end = self._raw_decode(self._text, self._place)
            except RecursionError as error:
                raise NotJsonError("it is nested too deeply") from error
            except json.JSONDecodeError as error:
                # What is cut off may go on in the next portion.
                is_cut = error.msg.startswith("Unterminated") or (
                    error.pos > len(self._text) - _NEAR_THE_END
                )
                if not (is_cut and self._read()):
                    self._place = error.pos
                    raise NotJsonError(error.msg) from error
            except ValueError as error:  # A whole number of thousands of digits.
                raise NotJsonError(str(error)) from error
            else:
                # A number may go on, too: "1" as "1.5".
                if self._text[end : end + 1] in _BEHIND_A_VALUE or not self._read():
                    self._place = end
                    return value
            if len(self._text) - self._place > 2 * self._longest:
                raise NotJsonError(f"a value of more than {self._longest:,} characters")

    def _read(self) -> bool:
        """Reads the next portion; whether there was one."""
        block = next(self._blocks, None)
        if block is None:
            return False
        self._lines_before += self._text.count("\n", 0, self._place)
        self._text, self._place = self._text[self._place :] + self._decode(block), 0
        return True
