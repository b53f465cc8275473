"""Finds symbols and added tokens in a text: at each place the longest one.

They are in a tree of their ends, which is followed from the end of a text to its beginning. Where
the next character leads to no branch, the longest other beginning of a way is gone on with (Aho and
Corasick 1975), so that each character is looked at once or twice, whatever the symbols are. A
pattern of all of them, `a|b|...`, compares each symbol with each place of a text.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable

from keras_addnorm.basics.errors import ArgumentError

# Each takes a hundred bytes or more; a thousand symbols have ten thousand.
_MOST_CHARACTERS = 1 << 19
_BITS_OF_A_CHARACTER = 21


class SymbolTree:
    """Texts that are looked for.

    Args:
        symbols: The texts, none of which is empty.

    Raises:
        ValueError: If they have too many characters together.
    """

    def __init__(self, symbols: Iterable[str]) -> None:
        self._symbols = tuple(symbols)
        if (size := sum(map(len, self._symbols))) > _MOST_CHARACTERS:
            raise ArgumentError(
                "The symbols and added tokens are too long to be looked for.",
                f"at most {_MOST_CHARACTERS:,} characters together",
                received=f"{size:,} of {len(self._symbols):,}",
            )
        firsts = "".join(re.escape(first) for first in {symbol[0] for symbol in self._symbols})
        self._first = re.compile(f"[{firsts}]" if firsts else "(?!)")
        # The branch behind a branch and a character, which are one number.
        self._next: dict[int, int] = {}
        # Of each branch, one more than the place of the longest symbol that it is the way to; and
        # the branch of the longest other beginning.
        self._found, self._other = array("l", [0]), array("l", [0])
        self._grow()

    def split(self, text: str) -> list[str]:
        """Divides a text at the symbols in it, from left to right.

        Args:
            text: Any text.

        Returns:
            Text, symbol, text, ..., text; some texts may be empty.
        """
        if self._first.search(text) is None:
            return [text]
        at = {}  # the longest symbol that begins at a place, from the last place to the first
        branch, follow = 0, self._next.get
        for place in range(len(text) - 1, -1, -1):
            code = ord(text[place])
            while (after := follow(branch << _BITS_OF_A_CHARACTER | code)) is None and branch:
                branch = self._other[branch]
            branch = after or 0
            if found := self._found[branch]:
                at[place] = self._symbols[found - 1]
        parts, end = [], 0
        for place, symbol in reversed(at.items()):
            if place >= end:
                parts += [text[end:place], symbol]
                end = place + len(symbol)
        return [*parts, text[end:]]

    def _grow(self) -> None:
        """Makes the branches of all symbols, those of short ways first."""
        ways = [(number, symbol, 0) for number, symbol in enumerate(self._symbols, 1)]
        size = 0
        while ways:
            size += 1
            longer = []
            for number, symbol, before in ways:
                code = ord(symbol[-size])
                key = before << _BITS_OF_A_CHARACTER | code
                if (branch := self._next.get(key)) is None:
                    other = self._other_of(before, code)
                    branch = self._next[key] = len(self._found)
                    self._other.append(other)
                    self._found.append(self._found[other])
                if size < len(symbol):
                    longer.append((number, symbol, branch))
                else:
                    self._found[branch] = number
            ways = longer

    def _other_of(self, branch: int, code: int) -> int:
        """The branch of the longest other beginning behind a branch and a character."""
        while branch:
            branch = self._other[branch]
            if (found := self._next.get(branch << _BITS_OF_A_CHARACTER | code)) is not None:
                return found
        return 0
