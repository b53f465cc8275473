"""Pairs from XLIFF 1.2 and 2.0, the files of translation tools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.languages import is_in
from keras_addnorm.data.readers.columns import Columns
from keras_addnorm.data.readers.input_file import InputFile
from keras_addnorm.data.readers.raw_pair import RawPair
from keras_addnorm.data.readers.reader import Reader
from keras_addnorm.data.readers.xml_stream import TextParts, XmlHandler, parse

# Codes of the original format, whose text is no part of the sentence (1.2); `g`, `mrk`, `pc` mark
# text that is.
_CODES = frozenset({"bpt", "ept", "it", "ph", "sub"})
_UNFINISHED = ("new", "needs-", "initial")


@dataclass(frozen=True)
class Xliff(Reader):
    """Reads the units whose translation is finished. Inline tags are stripped.

    Left out are units that are marked not to be translated, that have no target, or whose state is
    `new`, `needs-...` (1.2) or `initial` (2.0), unless they are approved; and those with
    `approved="no"`.
    """

    endings = (".xlf", ".xliff", ".mxliff", ".sdlxliff")
    starts = (b"<xliff",)

    def languages(self, file: InputFile) -> tuple[str, ...]:
        """Those of the file's head."""
        handler = _Units(None)
        for _ in itertools.islice(parse(file, handler), 1):
            pass
        return handler.languages

    def columns(self, file: InputFile, source: str, target: str) -> Columns:
        """Which of the two is the source of the file."""
        there = self.languages(file)
        wanted = self.source_column or source, self.target_column or target
        for sides in (("source", "target"), ("target", "source")):
            named = dict(zip(("source", "target"), there, strict=False))
            if all(
                is_in(named.get(side, ""), one) for side, one in zip(sides, wanted, strict=True)
            ):
                return Columns(*sides)
        raise ArgumentError(
            f"{file.label} is from {' to '.join(map(repr, there)) or 'no language'}.",
            received=f"{wanted[0]!r} and {wanted[1]!r}",
        )

    def pairs(self, file: InputFile, columns: Columns) -> Iterator[RawPair]:
        """Each finished unit, or segment of one."""
        yield from parse(file, _Units(columns))


class _Units(XmlHandler):
    """Gathers source and target of a unit (1.2) or a segment (2.0)."""

    def __init__(self, columns: Columns | None) -> None:
        super().__init__()
        self.languages: tuple[str, ...] = ()
        self._columns = columns
        self._texts: dict[str, TextParts] = {}
        self._inside: str | None = None
        self._codes = self._alternatives = self._line = 0
        self._is_2 = False
        self._unit: Mapping[str, str] = {}
        self._state = ""

    def start(self, name: str, attributes: Mapping[str, str], line: int) -> None:
        if name == "xliff":
            self._is_2 = attributes.get("version", "").startswith("2")
            self._name_languages(attributes, "srcLang", "trgLang")
        elif name == "file" and not self._is_2:
            self._name_languages(attributes, "source-language", "target-language")
        elif name in ("alt-trans", "matches", "notes", "glossary"):
            self._alternatives += 1
        elif name in ("trans-unit", "unit"):
            self._unit = dict(attributes.items())
            self._begin(line, "")
        if name == "segment":
            self._begin(line, attributes.get("state", "initial" if self._is_2 else ""))
        if self._alternatives:
            return
        if name in ("source", "target"):
            self._inside = name
            self._texts[name] = TextParts()
            if name == "target" and not self._is_2:
                self._state = attributes.get("state", "")
        elif self._inside and name in _CODES and not self._is_2:
            self._codes += 1

    def text(self, text: str) -> None:
        if self._inside and not self._codes:
            self._texts[self._inside].add(text)

    def end(self, name: str) -> None:
        if name in ("alt-trans", "matches", "notes", "glossary"):
            self._alternatives -= 1
        elif self._alternatives:
            return
        elif name == self._inside:
            self._inside = None
        elif self._inside and name in _CODES and not self._is_2:
            self._codes -= 1
        elif name == ("segment" if self._is_2 else "trans-unit"):
            self._end_unit()

    def _name_languages(self, attributes: Mapping[str, str], source: str, target: str) -> None:
        named = attributes.get(source, ""), attributes.get(target, "")
        self.languages = self.languages or tuple(filter(None, named))

    def _begin(self, line: int, state: str) -> None:
        self._texts, self._line, self._state = {}, line, state

    def _end_unit(self) -> None:
        if self._columns is None:
            self.found.append(RawPair("", "", self._line))
        elif "target" in self._texts and self._is_finished():
            texts = {side: str(parts) for side, parts in self._texts.items()}
            sides = str(self._columns.source), str(self._columns.target)
            self.found.append(RawPair(texts.get(sides[0], ""), texts.get(sides[1], ""), self._line))

    def _is_finished(self) -> bool:
        approved = self._unit.get("approved", "")
        if self._unit.get("translate") == "no" or approved == "no":
            return False
        return approved == "yes" or not self._state.startswith(_UNFINISHED)
