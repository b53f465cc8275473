"""Words that are longer than any vocabulary needs: what they cost is bounded.

A vocabulary's pieces are found in a word as a whole, which takes more and more steps for longer
words. So a word of more than `LONGEST_WORD` characters is split in parts of that many, none of
whose pieces goes on over its end. In an exported graph, too, which has no other limit.
"""

from __future__ import annotations

import re

LONGEST_WORD = 1000
"""The characters of a word that are split together."""

_LONG_WORD = re.compile(f"[^ ]{{{LONGEST_WORD + 1},}}")


def has_long_word(text: str) -> bool:
    """Tells whether a text has a word that is split in parts."""
    return len(text) > LONGEST_WORD and _LONG_WORD.search(text) is not None


def parts_of_text(text: str) -> list[str]:
    """Cuts a text inside of its long words.

    Args:
        text: A text, with spaces between words.

    Returns:
        The parts; joined they are the text.
    """
    cuts = [
        place
        for word in _LONG_WORD.finditer(text)
        for place in range(word.start() + LONGEST_WORD, word.end(), LONGEST_WORD)
    ]
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def parts_of_word(word: str) -> list[str]:
    """Cuts a word."""
    return [word[start : start + LONGEST_WORD] for start in range(0, len(word), LONGEST_WORD)]
