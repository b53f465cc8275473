"""The script that a text is written in: Latin, Cyrillic, Arabic, ..."""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter

# Words of Unicode's names that several scripts of one language, or forms of one script, share.
_SAME = {
    "CJK": "Chinese/Japanese",
    "HIRAGANA": "Chinese/Japanese",
    "KATAKANA": "Chinese/Japanese",
    "BOPOMOFO": "Chinese/Japanese",
    "IDEOGRAPHIC": "Chinese/Japanese",
    "KATAKANA-HIRAGANA": "Chinese/Japanese",
}
_FIRST_BEYOND_LATIN = "\u0250"
_FORMS = ("FULLWIDTH", "HALFWIDTH", "SMALL")
# Letters that texts of any script have: µ, ª, mathematical letters.
_NONE = frozenset({"MICRO", "FEMININE", "MASCULINE", "MATHEMATICAL", "MODIFIER", "OHM", "KELVIN"})

NO_SPACES = frozenset({"Chinese/Japanese", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"})
"""Scripts whose words are not divided by spaces."""


def script_of(text: str) -> str:
    """The script of most letters of a text; empty if it has no letters.

    Args:
        text: Any text.

    Returns:
        A name such as `Latin`; Chinese characters and Japanese kana are one.

    Example:
        >>> from keras_addnorm.data.scripts import script_of
        >>> script_of("Ja, 3 µm"), script_of("Привет, Tom"), script_of("東京へ"), script_of("12")
        ('Latin', 'Cyrillic', 'Chinese/Japanese', '')
    """
    if text.isascii() or max(text) < _FIRST_BEYOND_LATIN:
        return "Latin" if any(one.isalpha() and one not in "µªº" for one in text) else ""
    counts = Counter(filter(None, map(_script, text)))
    return counts.most_common(1)[0][0] if counts else ""


@functools.lru_cache(maxsize=1 << 16)
def _script(letter: str) -> str:
    if not letter.isalpha():
        return ""
    words = unicodedata.name(letter, "").replace("-", " ").split()
    while words and words[0] in _FORMS:
        words.pop(0)
    if not words or words[0] in _NONE:
        return ""
    return _SAME.get(words[0], words[0].title())
