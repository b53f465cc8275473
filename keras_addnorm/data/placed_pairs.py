"""Streams of checked pairs with the place that each comes from, for reports and cleaning."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from keras_addnorm.basics.paths import to_path
from keras_addnorm.data.loading import looks_like_path, open_translation
from keras_addnorm.data.open_files import ReaderChoice, find_pairs
from keras_addnorm.data.pair_sources import PairSource
from keras_addnorm.data.readers import RawPair
from keras_addnorm.data.text_files import LineChecker, LineReport, readable


class PlacedPair(NamedTuple):
    """A pair and where it stands.

    Attributes:
        source: The source text.
        target: The target text.
        place: File and line, or split and number.
    """

    source: str
    target: str
    place: str

    @property
    def texts(self) -> tuple[str, str]:
        """Both texts."""
        return self.source, self.target


@dataclass
class PairStream:
    """The pairs of a split, which can be read again and again.

    Attributes:
        split: The name of the split.
        sources: Files to read from; none for a prepared set.
        prepared: The prepared set.
        max_chars: The longest side to keep, in characters.
        report: What the last reading has kept and left out.
    """

    split: str
    sources: Sequence[PairSource] = ()
    prepared: Any = None
    max_chars: int = 1000
    report: LineReport | None = None

    def __iter__(self) -> Iterator[PlacedPair]:
        """The pairs that can be used; a `ValueError` if the files have no pair at all."""
        checker = LineChecker(self.split, self.max_chars)
        for raw, place in self._raw():
            pair = checker.check(raw.source, raw.target, place, raw.has_surplus)
            if pair is not None:
                yield PlacedPair(*pair, place)
        self.report = checker.report()
        if not self.report.total and self.sources:
            labels = ", ".join(files.label for files in self.sources[:3])
            raise ValueError(
                f"There is no pair of texts in {labels}. Expected one or more, with a text on both "
                "sides; of units and messages, those whose translation is finished count."
            )

    def every_pair(self) -> Iterator[tuple[str, str]]:
        """All pairs, also those that cannot be used, for a test set."""
        for raw, _ in self._raw():
            yield readable(raw.source), readable(raw.target)

    def _raw(self) -> Iterator[tuple[RawPair, str]]:
        for files in self.sources:
            files.check()
            for raw in files.raw_pairs():
                yield raw, f"{files.place}:{raw.line}"
        if self.prepared is not None:
            for number, (source, target) in enumerate(self.prepared.as_numpy_iterator(), 1):
                yield RawPair(source, target, number), f"{self.split}:{number}"


@dataclass(frozen=True)
class PairStreams:
    """The splits of some data.

    Attributes:
        source: The source language.
        target: The target language.
        streams: The splits, training first.
        notes: What a user should know about how they are read.
    """

    source: str
    target: str
    streams: tuple[PairStream, ...]
    notes: tuple[str, ...] = ()


def pair_streams(
    name_or_path: str | os.PathLike[str],
    *,
    source: str | None = None,
    target: str | None = None,
    max_chars: int = 1000,
    reader: ReaderChoice = None,
    stands_for: str = "",
) -> PairStreams:
    """Opens data of any origin as streams of pairs with their places.

    Args:
        name_or_path: As for `load_translation`, but not the standard input, which is read once.
        source: The source language.
        target: The target language.
        max_chars: The longest side to keep, in characters.
        reader: As for `load_translation`.
        stands_for: What messages call the path, if it stands for something else.

    Returns:
        The streams. Files are read as they are: nothing is prepared.
    """
    if looks_like_path(name_or_path):
        found = find_pairs(to_path(name_or_path), source, target, reader, stands_for)
        by_split = {
            split: [one for one in found.sources if one.split == split] for split in found.splits
        }
        streams = tuple(
            PairStream(split, sources, max_chars=max_chars) for split, sources in by_split.items()
        )
        return PairStreams(found.source, found.target, streams, found.notes)
    corpus = open_translation(
        name_or_path, source=source, target=target, max_chars=max_chars, keep_every_pair=True
    )
    streams = tuple(
        PairStream(split, prepared=corpus.read(split), max_chars=max_chars)
        for split in corpus.splits
    )
    return PairStreams(corpus.source, corpus.target, streams)
