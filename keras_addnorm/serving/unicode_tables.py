"""Unicode's data as arrays, and what a vocabulary's `Normalizer` does to each character.

All of it comes from Python's `unicodedata`, so that a graph and Python agree on the version of
Unicode.
"""

from __future__ import annotations

import functools
import itertools
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from keras_addnorm.data.characters import JOINERS, is_ignorable
from keras_addnorm.data.normalization import Normalizer

# Hangul syllables are composed by arithmetic: Unicode Standard, section 3.12.
FIRST_SYLLABLE, LAST_SYLLABLE = 0xAC00, 0xD7A3
FIRST_LEADING, NUM_LEADING = 0x1100, 19
FIRST_VOWEL, NUM_VOWELS = 0x1161, 21
BEFORE_TRAILING, NUM_TRAILING = 0x11A7, 28

PAGE_BITS = 8
PAGE_SIZE = 1 << PAGE_BITS
_NUM_CODES = sys.maxunicode + 1
# White space that `tf.strings.split` knows.
_SPLIT_AT = frozenset(" \t\n\v\f\r")
# A range of characters that need no work is looked for if it is this long, or in the vocabulary.
_LONG_RANGE = 64


class Pages(NamedTuple):
    """A number for each code point: `pages[starts[code >> bits] + (code & mask)]`.

    Attributes:
        starts: Where the page of each 256 code points begins.
        pages: The pages, equal ones once.
    """

    starts: np.ndarray
    pages: np.ndarray

    @classmethod
    def of(cls, numbers: Mapping[int, int]) -> Pages:
        """Packs numbers by code point; those that are not given are 0."""
        dense = np.zeros(_NUM_CODES, np.int32)
        dense[np.fromiter(numbers, np.int64, len(numbers))] = np.fromiter(
            numbers.values(), np.int32, len(numbers)
        )
        places: dict[bytes, int] = {}
        pages = [page.tobytes() for page in dense.reshape(-1, PAGE_SIZE)]
        starts = [places.setdefault(page, len(places) * PAGE_SIZE) for page in pages]
        return cls(np.array(starts, np.int32), np.frombuffer(b"".join(places), np.int32))


class Composition(NamedTuple):
    """How decomposed characters are ordered and joined again.

    Attributes:
        classes: The canonical combining class of each code point that has one.
        pairs: The character that two characters become.
    """

    classes: dict[int, int]
    pairs: dict[tuple[int, int], int]


@functools.cache
def composition() -> Composition:
    """The canonical composition of Unicode, without Hangul."""
    pairs = {}
    for code in _decomposable():
        character = chr(code)
        parts = unicodedata.decomposition(character)
        if not parts.startswith("<") and unicodedata.is_normalized("NFC", character):
            first, second = (int(part, 16) for part in parts.split())
            pairs[first, second] = code
    classes = {
        code: number for code in range(_NUM_CODES) if (number := unicodedata.combining(chr(code)))
    }
    return Composition(classes, pairs)


def second_characters() -> Iterator[int]:
    """All code points that can be joined to the one before."""
    yield from {second for _, second in composition().pairs}
    yield from range(FIRST_VOWEL, FIRST_VOWEL + NUM_VOWELS)
    yield from range(BEFORE_TRAILING + 1, BEFORE_TRAILING + NUM_TRAILING)


def most_joined() -> int:
    """How many characters are joined to one at most: those of its decomposition, without itself."""
    composed = composition().pairs.values()
    return max(len(unicodedata.normalize("NFD", chr(code))) for code in composed) - 1


def neighbours() -> Iterator[tuple[int, int]]:
    """Characters of class 0 that can be joined, and what stands right before them then."""
    found = composition()
    for first, second in found.pairs:
        if second not in found.classes:
            yield ord(unicodedata.normalize("NFD", chr(first))[-1]), second


def decompositions(normalizer: Normalizer) -> dict[int, str]:
    """What each character that does not stay becomes before characters are joined, by code point.

    Hangul syllables stay whole.
    """
    is_canonical = normalizer.rule.form == "NFC"
    found = {}
    for code in _decomposable():
        replaced = normalizer.replacement(chr(code))
        replaced = unicodedata.normalize("NFD" if is_canonical else "NFKD", replaced)
        if replaced != chr(code):
            found[code] = replaced
    return found


def spaces(normalizer: Normalizer) -> list[int]:
    """The code points that count as white space and that `tf.strings.split` does not know."""
    return sorted(map(ord, normalizer.spaces - _SPLIT_AT))


def dropped(normalizer: Normalizer) -> list[int]:
    """The code points that a normaliser leaves out."""
    return [code for code in _ignorable() if not normalizer.replacement(chr(code))]


def unchanged_ranges(normalizer: Normalizer, of_marks: bool) -> list[tuple[int, int]]:
    """Ranges of characters that a normaliser leaves as they are, whatever stands around them.

    Args:
        normalizer: What a vocabulary expects.
        of_marks: Combining marks, which stay as they are between two characters that are none; or
            all other characters.

    Returns:
        First and last code point of the ranges that are long or in the vocabulary.
    """
    form = normalizer.rule.form
    changed = {*dropped(normalizer), *spaces(normalizer)}
    if normalizer.drops_idle_joiners:
        changed.update(map(ord, JOINERS))
    marks = composition().classes
    if form is not None:
        changed.update(second_characters())
        changed.update(
            code
            for code in _decomposable()
            if unicodedata.normalize(form, normalizer.replacement(chr(code))) != chr(code)
        )
    elif of_marks:
        return []
    if of_marks:
        return list(ranges(sorted(marks.keys() - changed)))
    if form is not None:
        changed |= marks.keys()
    ends = sorted({*changed, *range(0xD800, 0xE000), -1, _NUM_CODES})
    between = ((first + 1, last - 1) for first, last in itertools.pairwise(ends))
    return [
        (first, last)
        for first, last in between
        if last - first + 1 >= _LONG_RANGE
        or any(normalizer.has(chr(code)) for code in range(first, last + 1))
    ]


def ranges(codes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The runs of rising code points, as first and last one."""
    for _, run in itertools.groupby(enumerate(codes), lambda item: item[1] - item[0]):
        numbers = [code for _, code in run]
        yield numbers[0], numbers[-1]


@functools.cache
def _decomposable() -> tuple[int, ...]:
    return _where(lambda character: bool(unicodedata.decomposition(character)))


@functools.cache
def _ignorable() -> tuple[int, ...]:
    return _where(is_ignorable)


def _where(holds: Callable[[str], bool]) -> tuple[int, ...]:
    return tuple(code for code in range(_NUM_CODES) if holds(chr(code)))
