"""Characters that nobody sees: which they are, and where the joiners among them have a meaning."""

from __future__ import annotations

import re
import unicodedata

ZERO_WIDTH_NON_JOINER, ZERO_WIDTH_JOINER = "\u200c", "\u200d"
JOINERS = frozenset((ZERO_WIDTH_NON_JOINER, ZERO_WIDTH_JOINER))

# Format characters that are printed: signs that span the digits behind them.
_PRINTED_FORMATS = frozenset(
    map(chr, (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD))
)
BRAILLE_BLANK = "\u2800"
"""Looks like a space, and stands between the words of Braille; no white space by its category."""

# What looks blank though it is no format character: marks of objects that were left out, fillers of
# Khitan, Egyptian and music, and code points that Unicode has set aside for ignorable characters.
_BLANK = frozenset(
    map(
        chr,
        (
            *(0x2065, 0x2800, 0x13441, 0x13442, 0x16FE4, 0x1D159),
            *range(0xFFF0, 0xFFF9),
            0xFFFC,
            0xE0000,
            *range(0xE0002, 0xE0020),
            *range(0xE0080, 0xE0100),
            *range(0xE01F0, 0xE1000),
        ),
    )
)
# Variation selectors and other characters of Unicode's property Default_Ignorable_Code_Point that
# are no format characters. They choose the look of the character before them, or fill a place.
_FILLERS = (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x3164, 0xFFA0)
_IGNORABLE = frozenset(map(chr, (*_FILLERS, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
# After these a joiner has a meaning: scripts whose letters join or form conjuncts (Arabic to
# Sinhala, Tibetan, Myanmar, Khmer, Mongolian and others), and emoji.
_TAKES_JOINERS = (
    (0x0600, 0x0DFF),
    (0x0F00, 0x109F),
    (0x1780, 0x18AF),
    (0x1A20, 0x1AAF),
    (0x1B00, 0x1C4F),
    (0x2190, 0x21FF),
    (0x2600, 0x27BF),
    (0x2B00, 0x2BFF),
    (0xA840, 0xA87F),
    (0xA8E0, 0xA8FF),
    (0xA930, 0xAA7F),
    (0xABC0, 0xABFF),
    (0xFB50, 0xFDFF),
    (0xFE0F, 0xFE0F),
    (0xFE70, 0xFEFC),
    (0x10A00, 0x10A5F),
    (0x10AC0, 0x10AFF),
    (0x11000, 0x11FFF),
    (0x1E900, 0x1E95F),
    (0x1F000, 0x1FAFF),
)


def is_invisible(character: str) -> bool:
    """Tells whether a character has no shape of its own: controls, format characters, blanks.

    White space is none of them: a tab or line break parts words.
    """
    category = unicodedata.category(character)
    if category == "Cc":
        return not character.isspace()
    return character in _BLANK or (category == "Cf" and character not in _PRINTED_FORMATS)


def is_ignorable(character: str) -> bool:
    """Tells whether a text without the character looks the same, or nearly the same."""
    return is_invisible(character) or character in _IGNORABLE


def is_blank(text: str) -> bool:
    """Tells whether there is nothing to see: white space and ignorable characters alone."""
    if text.isascii() and text.isprintable():
        return not text.strip()
    return all(character.isspace() or is_ignorable(character) for character in text)


def has_invisible(text: str) -> bool:
    """Tells whether a text has invisible characters that no script needs.

    Args:
        text: Any text.

    Returns:
        Whether there are controls, soft hyphens, marks of direction or byte order and the like;
        joiners only where they join nothing.
    """
    if text.isprintable() and _BLANK.isdisjoint(text):
        return False
    rest = drop_idle_joiners(text)
    return rest != text or any(map(is_invisible, set(rest) - JOINERS))


def character_class(ranges: list[tuple[int, int]] | tuple[tuple[int, int], ...]) -> str:
    """The ranges of code points as the inside of a character class, for Python and for RE2."""
    return "".join(
        f"{_escaped(first)}-{_escaped(last)}" if first < last else _escaped(first)
        for first, last in ranges
    )


def _escaped(code: int) -> str:
    # RE2 reads \x{...}, Python does not, and both read the character itself.
    character = chr(code)
    return f"\\{character}" if character.isascii() and not character.isalnum() else character


IDLE_JOINERS = f"(^|[^{character_class(_TAKES_JOINERS)}])[{''.join(sorted(JOINERS))}]+"
"""Joiners where they join nothing, behind what stands before them; for Python and for RE2."""

_IDLE_JOINERS = re.compile(IDLE_JOINERS)


def drop_idle_joiners(text: str) -> str:
    """Takes out joiners that do not follow a character which can take one."""
    return _IDLE_JOINERS.sub(r"\1", text)
