"""Sets of sentence pairs with splits, read in one direction: prepared ones, and rows in memory."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any

from keras_addnorm.data.characters import BLANK_PATTERN
from keras_addnorm.data.language_check import (
    PAIRS_LOOKED_AT,
    example_of,
    language_suspicion,
    usable_pairs,
)
from keras_addnorm.data.readers import RawPair
from keras_addnorm.data.readers.rows import columns_of_names, flat_names, text_at
from keras_addnorm.data.splits import intervals, listed, names_in, parts_in_order, resolve_split
from keras_addnorm.data.strings import describe
from keras_addnorm.data.text_files import LineChecker, LineReport, readable

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_datasets as tfds


class TranslationSet(abc.ABC):
    """Pairs in splits.

    Attributes:
        source: The source language.
        target: The target language.
        label: What it is, for messages.
        notes: What a user should know about how it is read.
    """

    source: str
    target: str
    label: str
    notes: tuple[str, ...]

    @property
    @abc.abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""

    @abc.abstractmethod
    def sizes(self) -> dict[str, int]:
        """The number of pairs of each split, those left out when it is read included."""

    @abc.abstractmethod
    def read(self, split: str) -> tf.data.Dataset:
        """The pairs of a split, in order."""

    @abc.abstractmethod
    def line_reports(self, splits: Iterable[str]) -> dict[str, LineReport]:
        """What was kept of each split."""

    def resolve_split(self, split: str) -> str:
        """Checks the names in a split expression and replaces aliases such as "val"."""
        return resolve_split(split, self.splits, self.label)

    def named_in(self, split: str) -> tuple[str, ...]:
        """The splits that a split expression reads from."""
        return names_in(self.resolve_split(split))


@dataclasses.dataclass(frozen=True)
class PreparedSet(TranslationSet):
    """A prepared builder, read in one direction."""

    builder: tfds.core.DatasetBuilder
    source: str
    target: str
    label: str
    max_chars: int
    keep_every_pair: bool = False
    notes: tuple[str, ...] = ()

    @property
    def splits(self) -> tuple[str, ...]:
        """Those of the builder."""
        return tuple(self.builder.info.splits)

    def sizes(self) -> dict[str, int]:
        """As the builder counted them."""
        return {name: split.num_examples for name, split in self.builder.info.splits.items()}

    def read(self, split: str) -> tf.data.Dataset:
        """The usable pairs of a split, or every pair, in the order on disk."""
        pairs = self._read_all(split)
        # With a filter, the number of pairs would be unknown.
        whole = self.keep_every_pair or self._is_checked()
        return pairs if whole else pairs.filter(self._is_usable)

    def _is_checked(self) -> bool:
        """Whether one of our own builders has checked every pair when it prepared the set."""
        checked = checked_length(self.builder)
        return checked is not None and checked <= self.max_chars

    def line_reports(self, splits: Iterable[str]) -> dict[str, LineReport]:
        """The stored reports of a folder, or counts from reading each split once."""
        if hasattr(self.builder, "line_reports"):
            stored: dict[str, LineReport] = self.builder.line_reports()
            return {split: stored[split] for split in splits}
        return {split: self._count(split) for split in splits}

    def _count(self, split: str) -> LineReport:
        if self._is_checked():
            kept = self.builder.info.splits[split].num_examples
            return LineReport(split, kept=kept, max_chars=self.max_chars)
        checker = LineChecker(split, self.max_chars)
        for source, target in self._read_all(split).as_numpy_iterator():
            checker.check(source, target)
        return checker.report()

    def _read_all(self, split: str) -> tf.data.Dataset:
        import tensorflow as tf
        import tensorflow_datasets as tfds

        feature = translation_feature(self.builder, self.label)
        try:
            parts_in_order(split, self.builder.info.splits)
            examples = self.builder.as_dataset(
                split=split,
                shuffle_files=False,
                # One shard after the other keeps the order of the files. Whether to cache is the
                # pipeline's decision.
                read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
            )
        except (ValueError, AssertionError) as error:
            raise ValueError(
                f"{split!r} is no split of {self.label}: {error}. Splits are {listed(self.splits)}"
                f"; a part of one is written like '{self.splits[0]}[:10%]' or "
                f"'{self.splits[0]}[100:200]'."
            ) from error

        def pair(example: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor]:
            texts = example[feature] if feature else example
            return tf.strings.strip(texts[self.source]), tf.strings.strip(texts[self.target])

        return examples.map(pair, num_parallel_calls=tf.data.AUTOTUNE)

    def _is_usable(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        sides = tf.stack([source, target])
        blank = tf.strings.regex_full_match(sides, BLANK_PATTERN)
        too_long = tf.strings.length(sides, unit="UTF8_CHAR") > self.max_chars
        return tf.logical_not(tf.reduce_any(blank | too_long))


@dataclasses.dataclass(frozen=True)
class RowSet(TranslationSet):
    """Rows with named fields in memory or of Hugging Face `datasets`, read in one direction."""

    rows: Mapping[str, Iterable[Mapping[str, Any]]]
    source: str
    target: str
    max_chars: int
    keep_every_pair: bool = False
    label: str = "the rows"
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, rows: Any, source: str | None, target: str | None, max_chars: int, keep: bool
    ) -> RowSet:
        """Finds the languages in the first row of each split."""
        if source is None or target is None:
            raise ValueError(
                f"Rows need source and target, the names of their fields. Received "
                f"source={source!r}, target={target!r}."
            )
        splits = rows if isinstance(rows, Mapping) else {"train": rows}
        found = cls(splits, source, target, max_chars, keep)
        notes = [note for name in splits for note in found._notes(name)]
        return dataclasses.replace(found, notes=tuple(dict.fromkeys(notes)))

    def _notes(self, split: str) -> Iterator[str]:
        """How the fields of a split were chosen, with an example, and what texts look like."""
        raw = itertools.islice(self._raw_pairs(split), PAIRS_LOOKED_AT)
        pairs = list(usable_pairs(RawPair(*pair, number) for number, pair in enumerate(raw)))
        languages = self.source, self.target
        if note := self._columns(split).note:
            yield f"{note}\n  {example_of(pairs[0], languages)}" if pairs else note
        if said := language_suspicion(pairs, *languages):
            yield f"{split}: {said[0].lower()}{said[1:]}"

    @property
    def splits(self) -> tuple[str, ...]:
        """The keys of a dictionary of splits; else `train`."""
        return tuple(self.rows)

    def sizes(self) -> dict[str, int]:
        """The number of rows."""
        return {
            name: len(rows) if isinstance(rows, Sized) else sum(1 for _ in rows)
            for name, rows in self.rows.items()
        }

    def read(self, split: str) -> tf.data.Dataset:
        """The usable pairs, or every pair."""
        import tensorflow as tf

        if "[" in split or "+" in split:
            parts = intervals(split, self.sizes())
        else:
            parts = [(split, 0, None)]  # type: ignore[list-item]
        text = tf.TensorSpec((), tf.string)
        return tf.data.Dataset.from_generator(
            lambda: self._pairs(parts), output_signature=(text, text)
        )

    def line_reports(self, splits: Iterable[str]) -> dict[str, LineReport]:
        """Counts from reading each split once."""
        reports = {}
        for split in splits:
            checker = LineChecker(split, self.max_chars)
            for source, target in self._raw_pairs(split):
                checker.check(source, target)
            reports[split] = checker.report()
        return reports

    def _pairs(self, parts: list[tuple[str, int, int]]) -> Iterator[tuple[str, str]]:
        checker = LineChecker("", self.max_chars)
        for split, start, end in parts:
            for raw in itertools.islice(self._raw_pairs(split), start, end):
                _, pair = checker.judge(*raw)
                if pair is not None:
                    yield pair
                elif self.keep_every_pair:
                    yield readable(raw[0]), readable(raw[1])

    def _raw_pairs(self, split: str) -> Iterator[tuple[str | bytes, str | bytes]]:
        columns = self._columns(split)
        for index, row in enumerate(self.rows[split]):
            label = f"Row {index} of {split!r}"
            yield (
                text_at(row, str(columns.source), label),
                text_at(row, str(columns.target), label),
            )

    def _columns(self, split: str) -> Any:
        first = next(iter(self.rows[split]), None)
        if not isinstance(first, Mapping):
            raise TypeError(
                "Expected rows such as {'translation': {'en': ..., 'de': ...}}; received "
                f"{describe(first)} in {split!r}."
            )
        label = f"The first row of {split!r}"
        return columns_of_names(flat_names(first), self.source, self.target, ("", ""), label)


def are_rows(value: Any) -> bool:
    """Whether a value is a collection of rows with named fields, or a dictionary of such."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__") or iter(value) is value:
        return False
    if isinstance(value, Mapping):
        return bool(value) and all(are_rows(rows) for rows in value.values())
    return isinstance(next(iter(value), None), Mapping)


def checked_length(builder: tfds.core.DatasetBuilder) -> int | None:
    """The longest text, in characters, that one of our own builders keeps; `None` for others."""
    longest: int | None = getattr(builder.builder_config, "max_chars", None)
    return longest


def translation_feature(builder: tfds.core.DatasetBuilder, label: str) -> str:
    """The name of the feature that holds the texts; empty if they are the example itself."""
    import tensorflow_datasets as tfds

    features = builder.info.features
    if isinstance(features, tfds.features.Translation):
        return ""
    nested: list[str] = [
        name for name, feature in features.items() if isinstance(feature, tfds.features.Translation)
    ]
    if not nested:
        raise ValueError(
            f"{label} has no `Translation` feature with a fixed pair of languages; its features are"
            f" {listed(features)}. Sets that have one: 'ted_hrlr_translate', 'wmt14_translate', "
            "'wmt16_translate', 'para_crawl', 'opus'."
        )
    return nested[0]
