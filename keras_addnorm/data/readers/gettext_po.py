"""Pairs from PO, the files of GNU gettext."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from keras_addnorm.basics.languages import is_in
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.data.readers.columns import Columns
from keras_addnorm.data.readers.input_file import InputFile
from keras_addnorm.data.readers.reader import RawPair, Reader

_CHARSET = re.compile(rb"charset=([\w.:-]+)")


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
            f"{file.label} names the language {language or 'of neither side'!r}: its messages are "
            f"taken for {source!r}, their translations for {target!r}."
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
    with file.open() as opened:
        content = opened.read()
    charset = _CHARSET.search(content[:4096])
    encoding = charset[1].decode("ascii") if charset else "utf-8"
    if encoding.upper() == "CHARSET":  # What a template has.
        encoding = "utf-8"
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
        return polib.pofile(text)
    except (OSError, LookupError, UnicodeDecodeError) as error:
        message = str(error).replace(content.decode("utf-8", "replace"), file.name)
        raise ValueError(
            f"{file.label} cannot be read as PO ({message[:300]}). Check it with `msgfmt -c`."
        ) from error
