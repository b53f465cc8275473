"""Pairs from translation memories in TMX (Translation Memory eXchange 1.1 to 1.4b)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from keras_addnorm.basics.languages import is_in, tidy
from keras_addnorm.basics.printing import listed
from keras_addnorm.data.readers.columns import Columns
from keras_addnorm.data.readers.input_file import InputFile
from keras_addnorm.data.readers.raw_pair import RawPair
from keras_addnorm.data.readers.reader import Reader
from keras_addnorm.data.readers.xml_stream import (
    RefusedElementError,
    TextParts,
    XmlHandler,
    parse,
)

# Codes of the original format, whose text is no part of the sentence. `hi` marks text that is.
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut", "sub"})
_UNITS_LOOKED_AT = 100
# Each variant makes a pair with each of the other side.
_MOST_VARIANTS = _MOST_PAIRS = 1000
_LONGEST_LANGUAGE = 80
_MOST_LANGUAGES = 100  # that are named where two are missing
# Asked of each variant of a memory, which has few languages; they are short, as `start` sees to.
_is_in = functools.lru_cache(1024)(is_in)


@dataclass(frozen=True)
class Tmx(Reader):
    """Reads units with a variant in each language.

    `en` takes `en-GB` and `en-US`, too; where a unit has several such variants, each of them makes
    a pair with each on the other side. Inline tags are stripped.
    """

    endings = (".tmx",)
    starts = (b"<?xml", b"<tmx", b"<!DOCTYPE tmx")

    def languages(self, file: InputFile) -> tuple[str, ...]:
        """Those of the first units."""
        handler = _Units(None)
        for _ in itertools.islice(parse(file, handler), _UNITS_LOOKED_AT):
            pass
        return tuple(dict.fromkeys(handler.seen))

    def columns(self, file: InputFile, source: str, target: str) -> Columns:
        """The languages themselves."""
        return Columns(self.source_column or source, self.target_column or target)

    def pairs(self, file: InputFile, columns: Columns) -> Iterator[RawPair]:
        """Each unit that has both languages."""
        handler = _Units((str(columns.source), str(columns.target)))
        found = False
        for pair in parse(file, handler):
            found = True
            yield pair
        if not found:
            raise ValueError(
                f"{file.label} has no unit in both {columns.source!r} and {columns.target!r}. Its "
                f"languages are {listed(handler.seen) or 'none'}."
            )


class _Units(XmlHandler):
    """Gathers the variants of a unit; without languages, an empty pair for each unit."""

    def __init__(self, languages: tuple[str, str] | None) -> None:
        super().__init__()
        self.seen: dict[str, None] = {}
        self._languages = languages
        self._variants: list[tuple[str, str]] = []
        self._language, self._line = "", 0
        self._segment: TextParts | None = None
        self._codes = 0

    def start(self, name: str, attributes: Mapping[str, str], line: int) -> None:
        if name == "tu":
            self._variants, self._line = [], line
        elif name == "tuv":
            language = attributes.get("xml:lang") or attributes.get("lang") or ""
            self._language = language[:_LONGEST_LANGUAGE]
            if len(self.seen) < _MOST_LANGUAGES:
                self.seen[tidy(self._language)] = None
        elif name == "seg":
            self._segment = TextParts()
        elif self._segment is not None and name in _CODES:
            self._codes += 1

    def text(self, text: str) -> None:
        if self._segment is not None and not self._codes:
            self._segment.add(text)

    def end(self, name: str) -> None:
        if name == "seg" and self._segment is not None:
            self._variants.append((self._language, str(self._segment)))
            self._segment = None
            if len(self._variants) > _MOST_VARIANTS:
                raise RefusedElementError(f"a unit of more than {_MOST_VARIANTS:,} variants")
        elif self._segment is not None and name in _CODES:
            self._codes -= 1
        elif name == "tu":
            self._end_unit()

    def _end_unit(self) -> None:
        if self._languages is None:
            self.found.append(RawPair("", "", self._line))
            return
        sides = [
            dict.fromkeys(text for language, text in self._variants if _is_in(language, wanted))
            for wanted in self._languages
        ]
        if len(sides[0]) * len(sides[1]) > _MOST_PAIRS:
            raise RefusedElementError(
                f"a unit with {len(sides[0])} variants of one language and {len(sides[1])} of the "
                f"other, which make more than {_MOST_PAIRS:,} pairs"
            )
        self.found += [
            RawPair(source, target, self._line) for source, target in itertools.product(*sides)
        ]
