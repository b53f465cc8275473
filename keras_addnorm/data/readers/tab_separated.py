"""Pairs in the columns of a text file, divided by tabs: Tatoeba's and Anki's sets, WMT's `.tsv`."""

from __future__ import annotations

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
from keras_addnorm.data.readers.raw_pair import LongRow, RawPair
from keras_addnorm.data.readers.reader import Reader


@dataclass(frozen=True)
class TabSeparated(Reader):
    """Reads lines of columns that are divided by tabs; quotation marks are part of the text."""

    endings = (".tsv", ".tab", ".txt")

    def languages(self, file: InputFile) -> tuple[str, ...]:
        """Those of a header."""
        return languages_of_header(_first_rows(file))

    def columns(self, file: InputFile, source: str, target: str) -> Columns:
        """By header, by content, else the first two that hold text."""
        return columns_of_rows(_first_rows(file), source, target, self.chosen, file.label)

    def pairs(self, file: InputFile, columns: Columns) -> Iterator[RawPair]:
        """A line is a pair; one with too few columns has an empty side."""
        for number, line in enumerate(file.lines(), 1):
            if len(line) > LONGEST_TEXT:
                yield LongRow.at(number)
            elif number > 1 or not columns.has_header:
                yield columns.pair(line.split(b"\t"), number)


def _first_rows(file: InputFile) -> list[list[str]]:
    lines = itertools.islice(file.lines(), ROWS_LOOKED_AT)
    rows = [line.decode("utf-8", "replace").split("\t") for line in lines]
    require_few_columns(len(rows[0]) if rows else 0, file.label)
    return rows
