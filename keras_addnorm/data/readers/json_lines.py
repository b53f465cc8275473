"""Pairs in objects of JSON, one a line: `{"translation": {"en": ..., "de": ...}}`, or flat."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import parse_json
from keras_addnorm.data.readers.columns import Columns, languages_in
from keras_addnorm.data.readers.input_file import InputFile
from keras_addnorm.data.readers.raw_pair import RawPair
from keras_addnorm.data.readers.reader import Reader
from keras_addnorm.data.readers.rows import columns_of_names, flat_names, text_at


@dataclass(frozen=True)
class JsonLines(Reader):
    """Reads one object a line; a file that is one list of objects is read as a whole."""

    endings = (".jsonl", ".json", ".ndjson")
    starts = (b"{", b"[")

    def languages(self, file: InputFile) -> tuple[str, ...]:
        """The keys that are languages, of the first object."""
        names = [name.rpartition(".")[2] for name in _names(file)]
        return languages_in(names)

    def columns(self, file: InputFile, source: str, target: str) -> Columns:
        """By the keys of the first object."""
        return columns_of_names(_names(file), source, target, self.chosen, file.label)

    def pairs(self, file: InputFile, columns: Columns) -> Iterator[RawPair]:
        """An object is a pair; one without a key has an empty side."""
        for row, line in _rows(file):
            yield RawPair(
                text_at(row, str(columns.source), f"{file.label}, line {line}"),
                text_at(row, str(columns.target), f"{file.label}, line {line}"),
                line,
            )


def _names(file: InputFile) -> list[str]:
    rows = [row for row, _ in itertools.islice(_rows(file), 1)]
    return flat_names(rows[0]) if rows else []


def _rows(file: InputFile) -> Iterator[tuple[Mapping[str, Any], int]]:
    if file.read_start(64).lstrip().startswith(b"["):
        file.refuse_wide_encoding()
        with file.open() as whole:
            text = whole.read().removeprefix(b"\xef\xbb\xbf")
        lines: Iterator[tuple[int, Any]] = enumerate(_parsed(text, file, 1), 1)
    else:
        lines = (
            (number, _parsed(line, file, number))
            for number, line in enumerate(file.lines(), 1)
            if line.strip()
        )
    for number, row in lines:
        if not isinstance(row, Mapping):
            raise ArgumentError(
                f'{file.label}, line {number}: expected an object such as {{"en": "...", '
                '"de": "..."}.',
                value=str(row)[:60],
            )
        yield row, number


def _parsed(text: bytes, file: InputFile, line: int) -> Any:
    try:
        return parse_json(text.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        place = line + getattr(error, "lineno", 1) - 1
        raise ValueError(
            f"{file.label}, line {place}: not JSON ({error}). Expected one object a line. Mend or "
            "remove that line."
        ) from error
