"""Finds symbols and added tokens in a text: at each place the longest one.

They are in a tree of their beginnings, so that what several begin with is compared once. A
pattern of all of them, `a|b|...`, compares each symbol with each place of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class _Branch:
    """What follows in some symbols behind the same beginning.

    Attributes:
        text: The characters that they share.
        symbol: The symbol that ends with these, or "".
        branches: What may follow, by its first character.
    """

    text: str
    symbol: str = ""
    branches: dict[str, _Branch] = field(default_factory=dict)


class SymbolTree:
    """Texts that are looked for.

    Args:
        symbols: The texts, none of which is empty.
    """

    def __init__(self, symbols: Iterable[str]) -> None:
        self._branches: dict[str, _Branch] = {}
        for symbol in symbols:
            self._add(symbol)
        firsts = "".join(map(re.escape, self._branches))
        self._first = re.compile(f"[{firsts}]" if firsts else "(?!)")

    def split(self, text: str) -> list[str]:
        """Divides a text at the symbols in it, from left to right.

        Args:
            text: Any text.

        Returns:
            Text, symbol, text, ..., text; some texts may be empty.
        """
        parts, end = [], 0
        for found in self._first.finditer(text):
            start = found.start()
            symbol = self._longest(text, start) if start >= end else ""
            if symbol:
                parts += [text[end:start], symbol]
                end = start + len(symbol)
        return [*parts, text[end:]]

    def _longest(self, text: str, place: int) -> str:
        branches, longest = self._branches, ""
        while (branch := branches.get(text[place : place + 1])) is not None:
            if not text.startswith(branch.text, place):
                break
            place += len(branch.text)
            branches, longest = branch.branches, branch.symbol or longest
        return longest

    def _add(self, symbol: str) -> None:
        branches, rest = self._branches, symbol
        while rest:
            branch = branches.setdefault(rest[0], _Branch(rest))
            shared = _shared(branch.text, rest)
            if shared < len(branch.text):  # It parts here.
                after = _Branch(branch.text[shared:], branch.symbol, branch.branches)
                branch.text, branch.symbol = branch.text[:shared], ""
                branch.branches = {after.text[0]: after}
            branches, rest, last = branch.branches, rest[shared:], branch
        last.symbol = symbol


def _shared(first: str, second: str) -> int:
    """The number of characters that both begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(second)))
