"""Sentence pairs in rows with named fields, in memory or of Hugging Face `datasets`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.data.language_check import notes_on
from keras_addnorm.data.pair_sources import PairSource
from keras_addnorm.data.readers import Columns, RawPair
from keras_addnorm.data.readers.rows import columns_of_names, flat_names, text_at
from keras_addnorm.data.request import Request
from keras_addnorm.data.strings import describe
from keras_addnorm.data.translation_set import TranslationSet

Row = Mapping[str, Any]
Rows = Iterable[Row] | Mapping[str, Iterable[Row]]


@dataclass(frozen=True)
class RowSource(PairSource):
    """The rows of a split.

    Attributes:
        split: The name of the split.
        rows: The rows, which can be read again and again.
        columns: The fields that the texts are in.
    """

    numbers_every_pair = True

    split: str
    rows: Iterable[Row]
    columns: Columns

    @classmethod
    def of(cls, split: str, rows: Iterable[Row], source: str, target: str) -> RowSource:
        """Finds the fields of two languages in the first row."""
        first = next(iter(rows), None)
        if not isinstance(first, Mapping):
            raise ArgumentTypeError(
                expected="rows such as {'translation': {'en': ..., 'de': ...}}",
                received=f"{describe(first)} in {split!r}",
            )
        label = f"The first row of {split!r}"
        return cls(
            split, rows, columns_of_names(flat_names(first), source, target, ("", ""), label)
        )

    @property
    def is_counted(self) -> bool:
        """There may be more of them than anybody waits for."""
        return False

    @property
    def note(self) -> str:
        """How the fields were chosen, if their names do not say."""
        return self.columns.note

    @property
    def size(self) -> int | None:
        """The number of rows, if they have one."""
        return len(self.rows) if isinstance(self.rows, Sized) else None

    def raw_pairs(self) -> Iterator[RawPair]:
        """A row is a pair."""
        source, target = str(self.columns.source), str(self.columns.target)
        for index, row in enumerate(self.rows):
            label = f"Row {index} of {self.split!r}"
            if not isinstance(row, Mapping):
                raise ArgumentTypeError(
                    f"{label} is no row.", "a dictionary as the first one", received=describe(row)
                )
            yield RawPair(text_at(row, source, label), text_at(row, target, label), index + 1)


def are_rows(value: Any) -> bool:
    """Whether a value is a collection of rows with named fields, or a dictionary of such."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__") or iter(value) is value:
        return False
    if isinstance(value, Mapping):
        return bool(value) and all(are_rows(rows) for rows in value.values())
    return isinstance(next(iter(value), None), Mapping)


def open_rows(request: Request) -> TranslationSet:
    """Finds the fields of two languages in rows, or in each split of a dictionary of rows.

    Args:
        request: What is wanted; its `data` are rows.

    Returns:
        The pairs.

    Raises:
        ValueError: If the languages are not both given, or not among the fields.
    """
    source, target = request.source, request.target
    if request.reader is not None:
        raise ArgumentError("Rows have no format: expected no reader.", value=request.reader)
    if source is None or target is None:
        raise ArgumentError(
            "Rows need source and target, the names of their fields.", source=source, target=target
        )
    splits = request.data if isinstance(request.data, Mapping) else {"train": request.data}
    sources = [RowSource.of(split, rows, source, target) for split, rows in splits.items()]
    languages = source, target
    notes = notes_on(sources, languages)
    return TranslationSet.of(request, sources, languages, "the rows", notes)
