"""Pairs in objects of JSON, one a line: `{"translation": {"en": ..., "de": ...}}`, or flat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import parse_json
from keras_addnorm.data.readers.columns import Columns, languages_in
from keras_addnorm.data.readers.input_file import LONGEST_TEXT, InputFile
from keras_addnorm.data.readers.json_values import JsonValues, NotJsonError
from keras_addnorm.data.readers.raw_pair import LongRow, RawPair
from keras_addnorm.data.readers.reader import Reader
from keras_addnorm.data.readers.rows import columns_of_names, flat_names, text_at


@dataclass(frozen=True)
class JsonLines(Reader):
    """Reads one object a line, or a list of objects."""

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
            if row is None:
                yield LongRow.at(line)
                continue
            yield RawPair(
                text_at(row, str(columns.source), f"{file.label}, line {line}"),
                text_at(row, str(columns.target), f"{file.label}, line {line}"),
                line,
            )


def _names(file: InputFile) -> list[str]:
    first = next((row for row, _ in _rows(file) if row is not None), {})
    return flat_names(first)


def _rows(file: InputFile) -> Iterator[tuple[Mapping[str, Any] | None, int]]:
    """The objects with their lines, in a list with their numbers; `None` for one too long."""
    if file.read_start(64).lstrip().startswith(b"["):
        file.refuse_wide_encoding()
        rows = _rows_of_list(file)
    else:
        rows = _rows_of_lines(file)
    for row, number in rows:
        if not isinstance(row, Mapping | None):
            raise ArgumentError(
                f'{file.label}, line {number}: expected an object such as {{"en": "...", '
                '"de": "..."}.',
                value=str(row)[:60],
            )
        yield row, number


def _rows_of_list(file: InputFile) -> Iterator[tuple[Any, int]]:
    values = JsonValues(file.blocks(), LONGEST_TEXT)
    try:
        for number, value in enumerate(values, 1):
            # Null is no object, and stands for none below.
            yield ("null" if value is None else value), number
    except NotJsonError as error:
        raise _not_json(error, file, values.line) from error


def _rows_of_lines(file: InputFile) -> Iterator[tuple[Any, int]]:
    for number, line in enumerate(file.lines(), 1):
        if len(line) > LONGEST_TEXT:
            yield None, number
        elif line.strip():
            try:
                value = parse_json(line.decode("utf-8", "surrogateescape"))
            except ValueError as error:
                raise _not_json(error, file, number) from error
            yield ("null" if value is None else value), number


def _not_json(error: ValueError, file: InputFile, line: int) -> ValueError:
    return ValueError(
        f"{file.label}, line {line}: not JSON ({error}). Expected one object a line. Mend or "
        "remove that line."
    )
