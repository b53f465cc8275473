"""Pairs from PO, the files of GNU gettext."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_addnorm.basics.languages import is_in
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.text import is_encoding_of_text
from keras_addnorm.data.readers.columns import Columns
from keras_addnorm.data.readers.input_file import InputFile
from keras_addnorm.data.readers.raw_pair import RawPair
from keras_addnorm.data.readers.reader import Reader

_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_LINE = re.compile(
    r"""(?:\#.*|(?:(?:msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s*)?"(?:[^"\\]|\\.)*")?"""
)


@dataclass(frozen=True)
class GettextPo(Reader):
    """Reads the messages that are translated, neither fuzzy nor obsolete; each plural as a pair.

    A file is read as a whole. Placeholders such as `%s` are part of the text.
    """

    endings = (".po",)
    starts = (b"msgid", b"#, ")

    def languages(self, file: InputFile) -> tuple[str, ...]:
        """None: the head names one language, that of the translations."""
        return ()

    def columns(self, file: InputFile, source: str, target: str) -> Columns:
        """By the head's `Language`; without one, the messages are in the source language."""
        language = _messages(file).metadata.get("Language", "")
        if language and is_in(language, source) and not is_in(language, target):
            return Columns("msgstr", "msgid")
        if language and is_in(language, target):
            return Columns("msgid", "msgstr")
        note = (
            f"{file.label} names {f'the language {language!r}' if language else 'no language'}: "
            f"its messages are taken for {source!r}, their translations for {target!r}."
        )
        return Columns("msgid", "msgstr", note=note)

    def pairs(self, file: InputFile, columns: Columns) -> Iterator[RawPair]:
        """Each translated message."""
        turned = columns.source == "msgstr"
        for entry in _messages(file):
            if entry.obsolete or entry.fuzzy or not entry.translated():
                continue
            for message, translation in _forms(entry):
                pair = (translation, message) if turned else (message, translation)
                yield RawPair(*pair, entry.linenum)


def _forms(entry: Any) -> list[tuple[str, str]]:
    """The singular and, where there is one, the plural that the most numbers take."""
    if not entry.msgid_plural:
        return [(entry.msgid, entry.msgstr)]
    forms = [text for _, text in sorted(entry.msgstr_plural.items(), key=lambda form: int(form[0]))]
    pairs = [(entry.msgid, forms[0]), (entry.msgid_plural, forms[-1])]
    # A language with one form uses it for any number, which is what the plural says.
    return pairs if len(forms) > 1 else pairs[1:]


def _messages(file: InputFile) -> Any:
    (polib,) = require_extra("data", "A PO file", "polib")
    file.refuse_wide_encoding()
    with file.open() as opened:
        content = opened.read()
    charset = _CHARSET.search(content[:4096])
    encoding = charset[1].decode("ascii") if charset else "utf-8"
    if encoding.upper() == "CHARSET":  # What a template has.
        encoding = "utf-8"
    if not is_encoding_of_text(encoding):
        raise _unreadable(file, f"its charset {encoding!r} is no encoding of text")
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _unreadable(file, str(error)) from error
    for number, line in enumerate(text.split("\n"), 1):
        if not _LINE.fullmatch(line.strip()):  # polib passes over a text that is not closed.
            raise _unreadable(
                file, f"line {number}, {line.strip()[:40]!r}, is no keyword with a text in quotes"
            )
    # polib takes a name or a content. A content can be the name of a file, so it gets a name.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "messages.po")
        copy.write_text(text, encoding="utf-8", newline="\n")
        try:
            messages = polib.pofile(str(copy), encoding="utf-8")
        except (OSError, ValueError, IndexError) as error:
            raise _unreadable(file, str(error).replace(str(copy), file.name)[:300]) from error
    if not messages and not messages.metadata:
        raise _unreadable(file, "it has no message")
    return messages


def _unreadable(file: InputFile, reason: str) -> ValueError:
    return ValueError(f"{file.label} cannot be read as PO ({reason}). Check it with `msgfmt -c`.")
