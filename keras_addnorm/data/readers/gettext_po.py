"""Pairs from PO, the files of GNU gettext."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from keras_addnorm.basics.languages import is_in
from keras_addnorm.basics.text import is_encoding_of_text
from keras_addnorm.data.readers.columns import Columns
from keras_addnorm.data.readers.input_file import LONGEST_TEXT, InputFile
from keras_addnorm.data.readers.raw_pair import LongRow, RawPair
from keras_addnorm.data.readers.reader import Reader

_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_LINE = re.compile(
    r'''(?:(msgctxt|msgid|msgid_plural|msgstr(?:\[\d{1,3}\])?)\s*)?"((?:[^"\\]++|\\.)*+)"'''
)
_ESCAPED = re.compile(r'\\(["\\abfnrtv])')
_CHARACTERS = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_LANGUAGE = re.compile(r"^Language:(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class GettextPo(Reader):
    """Reads the messages that are translated, neither fuzzy nor obsolete; each plural as a pair.

    Placeholders such as `%s` are part of the text.
    """

    endings = (".po",)
    starts = (b"msgid", b"#, ")

    def languages(self, file: InputFile) -> tuple[str, ...]:
        """None: the head names one language, that of the translations."""
        return ()

    def columns(self, file: InputFile, source: str, target: str) -> Columns:
        """By the head's `Language`; without one, the messages are in the source language."""
        head = next(_messages(file))
        found = None if head.texts["msgid"] else _LANGUAGE.search(head.texts.get("msgstr", ""))
        language = found[1].strip() if found else ""
        if language and is_in(language, source) and not is_in(language, target):
            return Columns("msgstr", "msgid")
        if language and is_in(language, target):
            return Columns("msgid", "msgstr")
        named = f"the language {language[:80]!r}" if language else "no language"
        note = (
            f"{file.label} names {named}: its messages are taken for {source!r}, their "
            f"translations for {target!r}."
        )
        return Columns("msgid", "msgstr", note=note)

    def pairs(self, file: InputFile, columns: Columns) -> Iterator[RawPair]:
        """Each translated message."""
        turned = columns.source == "msgstr"
        for message in _messages(file):
            if message.is_too_long:
                yield LongRow.at(message.line)
            elif message.is_translated:
                for text, translation in message.forms():
                    pair = (translation, text) if turned else (text, translation)
                    yield RawPair(*pair, message.line)


@dataclass
class _Message:
    """A message that is being read.

    Attributes:
        is_fuzzy: Whether its translation is to be looked at by somebody.
        texts: Its texts by their keywords.
        line: The line of its first text.
        size: The characters of all its texts; what follows `LONGEST_TEXT` of them is left out.
    """

    is_fuzzy: bool = False
    texts: dict[str, str] = field(default_factory=dict)
    line: int = 0
    size: int = 0
    _parts: list[str] = field(default_factory=list)

    def begin(self, keyword: str, line: int) -> None:
        """Begins a text."""
        self.end()
        self.line = self.line or line
        self.texts[keyword] = ""

    def add(self, text: str) -> None:
        """Adds to the text that was begun last."""
        self.size += len(text)
        if not self.is_too_long:
            self._parts.append(_ESCAPED.sub(_unescaped, text))

    def end(self) -> None:
        """Ends the text that was begun last."""
        if self._parts:
            self.texts[next(reversed(self.texts))] = "".join(self._parts)
            self._parts = []

    @property
    def is_too_long(self) -> bool:
        """Whether it is left out for its length."""
        return self.size > LONGEST_TEXT

    @property
    def translations(self) -> list[str]:
        """The translation, or those of all numbers."""
        return [text for keyword, text in self.texts.items() if keyword.startswith("msgstr")]

    @property
    def is_translated(self) -> bool:
        """Whether it can be learned from; the head of a file, without a text, cannot."""
        return bool(self.texts["msgid"]) and not self.is_fuzzy and all(self.translations)

    def forms(self) -> list[tuple[str, str]]:
        """The singular and, where there is one, the plural that the most numbers take."""
        plural, forms = self.texts.get("msgid_plural"), self.translations
        if plural is None:
            return [(self.texts["msgid"], forms[0])]
        pairs = [(self.texts["msgid"], forms[0]), (plural, forms[-1])]
        # A language with one form uses it for any number, which is what the plural says.
        return pairs if len(forms) > 1 else pairs[1:]


def _unescaped(match: re.Match[str]) -> str:
    return _CHARACTERS.get(match[1], match[1])


def _messages(file: InputFile) -> Iterator[_Message]:
    """All messages but the obsolete ones, whose lines are comments."""
    encoding, message, count = _encoding(file), _Message(), 0
    for number, line in enumerate(file.lines(), 1):
        try:
            text = line.decode(encoding).strip()
        except UnicodeDecodeError as error:
            raise _unreadable(file, f"line {number}, {error}") from error
        if not text:
            continue
        match = None if text.startswith("#") else _LINE.fullmatch(text)
        keyword = match[1] if match else None
        if (text.startswith("#") or keyword in ("msgctxt", "msgid")) and message.translations:
            message.end()
            yield message
            message, count = _Message(), count + 1
        if text.startswith("#"):
            message.is_fuzzy = (message.is_fuzzy or _is_fuzzy(text)) and text[:2] != "#~"
            continue
        if len(line) > LONGEST_TEXT:
            raise _unreadable(file, f"line {number} has more than {LONGEST_TEXT:,} bytes")
        if match is None:
            what = "is no keyword with a text in quotes"
            raise _unreadable(file, f"line {number}, {text[:40]!r}, {what}")
        if keyword is not None:
            if not _can_begin(keyword, message):
                raise _unreadable(file, f"line {number}, {text[:40]!r}, is not in its place")
            message.begin(keyword, number)
        elif not message.texts:
            raise _unreadable(file, f"line {number}, {text[:40]!r}, has no keyword before it")
        message.add(match[2])
    message.end()
    if message.translations:
        yield message
    elif message.texts:
        raise _unreadable(file, "its last message has no translation")
    elif not count:
        raise _unreadable(file, "it has no message")


def _can_begin(keyword: str, message: _Message) -> bool:
    """Whether a text can follow those of a message: each stands once, the translations last."""
    if keyword in message.texts:
        return False
    if keyword.startswith("msgstr"):
        return "msgid" in message.texts
    return not message.translations and (keyword != "msgid_plural" or "msgid" in message.texts)


def _is_fuzzy(comment: str) -> bool:
    return comment.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", comment[2:])


def _encoding(file: InputFile) -> str:
    """The encoding that the head names."""
    charset = _CHARSET.search(file.read_start(4096))
    encoding = charset[1].decode("ascii", "replace") if charset else "utf-8"
    if encoding.upper() == "CHARSET":  # What a template has.
        encoding = "utf-8"
    if not is_encoding_of_text(encoding):
        raise _unreadable(file, f"its charset {encoding[:40]!r} is no encoding of text")
    return encoding


def _unreadable(file: InputFile, reason: str) -> ValueError:
    return ValueError(f"{file.label} cannot be read as PO ({reason}). Check it with `msgfmt -c`.")
