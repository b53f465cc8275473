"""Finds training pairs that are in held-out sets, exactly or nearly."""

from __future__ import annotations

import re
from collections.abc import Iterable

from keras_addnorm.basics.text import normalized
from keras_addnorm.data.scripts import NO_SPACES, script_of

_DIGIT, _LETTER, _WORD = re.compile(r"\d"), re.compile(r"\w"), re.compile(r"\w+")
# Shorter sentences are alike by chance.
_NEAR_FROM = 5
# Nearly equal texts need memory for each word of a held-out text. Test sets are smaller.
_NEAR_AT_MOST = 50_000


class HeldOutTexts:
    """The pairs of validation and test sets, to be compared with training pairs.

    Args:
        pairs: The held-out pairs. What is nearly equal is found for the first 50,000.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs: set[tuple[str, str]] = set()
        self._bags: tuple[set[int], set[int]] = (set(), set())
        self._shorter: tuple[set[int], set[int]] = (set(), set())
        for pair in pairs:
            if not all(pair):
                continue
            self._pairs.add(pair)
            if len(self._pairs) > _NEAR_AT_MOST:
                continue
            for side, text in enumerate(pair):
                bag, words = _bag(text)
                if len(words) >= _NEAR_FROM:
                    self._bags[side].add(bag)
                    self._shorter[side].update(bag - word for word in words)

    def __len__(self) -> int:
        return len(self._pairs)

    def has(self, pair: tuple[str, str]) -> bool:
        """Whether the same pair is held out."""
        return pair in self._pairs

    def has_near(self, pair: tuple[str, str]) -> bool:
        """Whether one side is a held-out text, but for one word."""
        return any(self._is_near(text, side) for side, text in enumerate(pair))

    def _is_near(self, text: str, side: int) -> bool:
        whole, shorter = self._bags[side], self._shorter[side]
        if not whole:
            return False
        bag, words = _bag(text)
        if len(words) < _NEAR_FROM:
            return False
        if bag in whole or bag in shorter:
            return True
        without_one = [bag - word for word in words]
        return not (shorter.isdisjoint(without_one) and whole.isdisjoint(without_one))


def _bag(text: str) -> tuple[int, list[int]]:
    """A hash of the words of a text in any order, and those of its words."""
    plain = _DIGIT.sub("0", normalized("NFKC", text).casefold())
    words = list(map(hash, (_LETTER if script_of(plain) in NO_SPACES else _WORD).findall(plain)))
    return sum(words), words
