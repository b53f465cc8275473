"""Finds training pairs that are in held-out sets, exactly or nearly."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from keras_addnorm.data.scripts import NO_SPACES, script_of

# Shorter sentences are alike by chance.
_NEAR_FROM = 5


class HeldOutTexts:
    """The pairs of validation and test sets, to be compared with training pairs.

    Args:
        pairs: The held-out pairs.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs: set[tuple[str, str]] = set()
        self._bags: tuple[set[int], set[int]] = (set(), set())
        self._shorter: tuple[set[int], set[int]] = (set(), set())
        for pair in pairs:
            if not all(pair):
                continue
            self._pairs.add(pair)
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
        """Whether one side is a held-out text, but for one word.

        Case, punctuation, digits and the order of the words do not count, nor do texts of fewer
        than five words (characters, in scripts without spaces).
        """
        return bool(self._bags[0]) and any(
            self._is_near(text, side) for side, text in enumerate(pair)
        )

    def _is_near(self, text: str, side: int) -> bool:
        bag, words = _bag(text)
        if len(words) < _NEAR_FROM:
            return False
        whole, shorter = self._bags[side], self._shorter[side]
        if bag in whole or bag in shorter:
            return True
        return any(bag - word in shorter or bag - word in whole for word in words)


def _bag(text: str) -> tuple[int, list[int]]:
    """A hash of the words of a text in any order, and those of its words."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    pattern = r"\w" if script_of(plain) in NO_SPACES else r"\w+"
    words = [hash(re.sub(r"\d", "0", word)) for word in re.findall(pattern, plain)]
    return sum(words), words
