"""Pairs in the columns of a CSV file."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from keras_addnorm.data.readers.columns import (
    ROWS_LOOKED_AT,
    Columns,
    columns_of_rows,
    languages_of_header,
    require_few_columns,
)
from keras_addnorm.data.readers.input_file import LONGEST_TEXT, InputFile
from keras_addnorm.data.readers.raw_pair import RawPair
from keras_addnorm.data.readers.reader import Reader


@dataclass(frozen=True)
class CommaSeparated(Reader):
    """Reads CSV with commas or semicolons; a quoted field may hold these and line breaks."""

    endings = (".csv",)

    def languages(self, file: InputFile) -> tuple[str, ...]:
        """Those of a header."""
        return languages_of_header(_first_rows(file))

    def columns(self, file: InputFile, source: str, target: str) -> Columns:
        """By header, by content, else the first two that hold text."""
        return columns_of_rows(_first_rows(file), source, target, self.chosen, file.label)

    def pairs(self, file: InputFile, columns: Columns) -> Iterator[RawPair]:
        """A row is a pair; one with too few columns has an empty side."""
        rows = _rows(file)
        if columns.has_header:
            next(rows, None)
        for row, line in rows:
            yield columns.pair(row, line)


def _first_rows(file: InputFile) -> list[list[str]]:
    rows = [row for row, _ in itertools.islice(_rows(file), ROWS_LOOKED_AT)]
    require_few_columns(len(rows[0]) if rows else 0, file.label)
    return rows


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """The next row; a limit of the csv module, which holds for a whole process, is put back."""
    limit = csv.field_size_limit(LONGEST_TEXT)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit)


def _rows(file: InputFile) -> Iterator[tuple[list[str], int]]:
    """The rows, each with the line that it begins on."""
    size = 0

    def read_lines() -> Iterator[str]:
        nonlocal size
        for line in file.lines():
            size += len(line)
            if size > LONGEST_TEXT:
                raise csv.Error(f"a row of more than {LONGEST_TEXT:,} bytes")
            yield line.decode("utf-8", "surrogateescape") + "\n"

    lines, line = read_lines(), 1
    try:
        first = next(lines, None)
        if first is None:
            return
        delimiter = ";" if first.count(";") > first.count(",") else ","
        reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter, strict=True)
        while (row := _next_row(reader)) is not None:
            if row:  # The csv module gives an empty row for an empty line.
                yield row, line
            else:
                yield ["", ""], line
            line, size = reader.line_num + 1, 0
    except csv.Error as error:
        mend = "Mend the quotation marks of that row"
        if (
            "field limit" in str(error) or size > LONGEST_TEXT
        ):  # A mark that is not closed, or a whole library.
            mend = "Close its quotation mark, or take out that row"
        raise ValueError(
            f"{file.label}, line {line}: not CSV ({error}). {mend}, or say that the columns are "
            "divided by tabs."
        ) from error
