"""A set of sentence pairs with splits, read in one direction, whatever the pairs come from."""

from __future__ import annotations

import collections
import functools
import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from keras_addnorm.data.line_report import LineChecker, LineReport, readable
from keras_addnorm.data.pair_sources import PairSource
from keras_addnorm.data.pairs import Pairs
from keras_addnorm.data.readers import RawPair
from keras_addnorm.data.request import Request
from keras_addnorm.data.splits import intervals, names_in, resolve_split

_LOGGER = logging.getLogger(__name__)


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


@dataclass(eq=False)
class Split:
    """The pairs of one split, which can be read again and again.

    Attributes:
        name: Its name.
        sources: What they are read from, in order.
        max_chars: The longest side to keep, in characters.
        keep_every_pair: Whether `texts` has the pairs that cannot be used as well.
        logs_report: Whether the report is still to be logged.
        report: What was kept and left out, once the split has been read to its end.
    """

    name: str
    sources: tuple[PairSource, ...]
    max_chars: int = 1000
    keep_every_pair: bool = False
    logs_report: bool = False
    report: LineReport | None = None

    def check(self) -> None:
        """Refuses what cannot be read at all, before the first pair is read."""
        for one in self.sources:
            one.check()

    def placed(self) -> Iterator[PlacedPair]:
        """The pairs that can be used, with their places."""
        for raw, source, pair in self._judged():
            if pair is not None:
                yield PlacedPair(*pair, f"{source.place}:{raw.line}")

    def every_pair(self) -> Iterator[tuple[str, str]]:
        """All pairs, also those that cannot be used."""
        for source in self.sources:
            for raw in source.raw_pairs():
                yield readable(raw.source), readable(raw.target)

    def texts(self, start: int = 0, end: int | None = None) -> Iterator[tuple[str, str]]:
        """The pairs that can be used, or every pair; or a part of them.

        Args:
            start: The first one.
            end: The one behind the last one; `None` for all.

        Yields:
            Source and target text.

        Raises:
            ValueError: If there is none in the whole split.
        """
        judged = self._judged()
        if self._numbers_every_pair:
            judged = itertools.islice(judged, start, end)
            start, end = 0, None
        if self.keep_every_pair:
            pairs = (pair or (readable(raw[0]), readable(raw[1])) for raw, _, pair in judged)
        else:
            pairs = (pair for _, _, pair in judged if pair is not None)
        yield from itertools.islice(pairs, start, end)
        if self.report is not None:
            self._say(self.report)

    def counted(self) -> LineReport:
        """What is kept and left out, from reading the split once."""
        if self.report is None:
            collections.deque(self._judged(), maxlen=0)
        report: LineReport = self.report  # type: ignore[assignment]
        self._say(report)
        return report

    def size(self) -> int:
        """The number of pairs that parts such as `train[:10%]` are parts of."""
        if self._numbers_every_pair:
            known = [source.size for source in self.sources if source.size is not None]
            return sum(known) if len(known) == len(self.sources) else self.counted().total
        report = self.counted()
        return report.total if self.keep_every_pair else report.kept

    def count(self, start: int = 0, end: int | None = None) -> int:
        """The number of pairs that `texts` gives."""
        if start == 0 and end is None and not self.keep_every_pair:
            return self.counted().kept
        if self._numbers_every_pair and not self.keep_every_pair:
            return sum(1 for _ in self.texts(start, end))
        return (self.size() if end is None else end) - start

    @property
    def is_counted(self) -> bool:
        """Whether a data set of the pairs has a length: what is needed for it is there or small."""
        if self.keep_every_pair and all(source.size is not None for source in self.sources):
            return True
        return all(source.is_counted for source in self.sources)

    @property
    def _numbers_every_pair(self) -> bool:
        return all(source.numbers_every_pair for source in self.sources)

    def _judged(self) -> Iterator[tuple[RawPair, PairSource, tuple[str, str] | None]]:
        """All pairs as they are read, and their texts if these can be used."""
        checker = LineChecker(self.name, self.max_chars)
        several = len(self.sources) > 1
        for source in self.sources:
            for raw in source.raw_pairs():
                place = f"{source.place}:{raw.line}" if several else raw.line
                yield raw, source, checker.check(raw.source, raw.target, place, raw.fault)
        report = checker.report()
        if not report.total:
            raise ValueError(
                f"There is no pair of texts in {self._labels}. Expected one or more, with a text "
                "on both sides; of units and messages, those whose translation is finished count."
            )
        self.report = report

    def _say(self, report: LineReport) -> None:
        """Logs the report once, and refuses a split without a pair."""
        if not report.kept:
            raise ValueError(
                f"{self._labels} hold no pair that can be used ({report}). Each line needs text on "
                f"both sides, in UTF-8, of at most {report.max_chars:,} characters."
            )
        if self.logs_report and not self.keep_every_pair:
            _LOGGER.log(logging.WARNING if report.left_out else logging.INFO, "%s", report)
        self.logs_report = False

    @property
    def _labels(self) -> str:
        return ", ".join(source.label for source in self.sources[:3])


@dataclass(frozen=True)
class TranslationSet:
    """Pairs in splits.

    Attributes:
        sources: Where the pairs of each split are read from, those of a split together.
        source: The source language.
        target: The target language.
        label: What it is, for messages.
        notes: What a user should know about how it is read.
        max_chars: The longest side to keep, in characters.
        keep_every_pair: Whether pairs that cannot be used are read as well.
        logs_reports: Whether the report of each split is logged when it is known.
    """

    sources: tuple[PairSource, ...]
    source: str
    target: str
    label: str
    notes: tuple[str, ...] = ()
    max_chars: int = 1000
    keep_every_pair: bool = False
    logs_reports: bool = False

    @classmethod
    def of(
        cls,
        request: Request,
        sources: Iterable[PairSource],
        languages: tuple[str, str],
        label: str,
        notes: Iterable[str] = (),
    ) -> TranslationSet:
        """What was found for a request, to be read as it says."""
        limits = request.max_chars, request.keep_every_pair
        return cls(tuple(sources), *languages, label, tuple(notes), *limits)

    @functools.cached_property
    def splits(self) -> dict[str, Split]:
        """The splits by name."""
        by_name: dict[str, list[PairSource]] = {}
        for source in self.sources:
            by_name.setdefault(source.split, []).append(source)
        choices = self.max_chars, self.keep_every_pair, self.logs_reports
        return {name: Split(name, tuple(some), *choices) for name, some in by_name.items()}

    @property
    def sizes(self) -> Mapping[str, int]:
        """The number of pairs of each split, which is counted when it is asked for."""
        return _Sizes(self.splits)

    def read(self, split: str) -> Pairs:
        """The pairs of a split expression, such as `train[:10%]+validation`, in order.

        Args:
            split: The expression.

        Returns:
            The usable pairs, or every pair.

        Raises:
            ValueError: If there is no such split, or it cannot be read at all.
        """
        split = self.resolve_split(split)
        for name in names_in(split):
            self.splits[name].check()
        parts: Iterable[tuple[str, int, int | None]]
        if "[" in split:
            parts = intervals(split, self.sizes, self.label)
        else:  # Whole splits need no sizes.
            parts = ((name, 0, None) for name in split.split("+"))
        return _Parts([(self.splits[name], start, end) for name, start, end in parts])

    def fingerprint(self) -> str:
        """A digest of all pairs and of how they are read; most files need not be parsed for it."""
        digest = hashlib.blake2b(digest_size=16)
        for one in self.sources:
            digest.update(f"{one.split} {one.fingerprint()}\n".encode())
        return f"{digest.hexdigest()} {self.max_chars}"

    def line_reports(self, splits: Iterable[str]) -> dict[str, LineReport]:
        """What is kept of each split, as a whole."""
        return {name: self.splits[name].counted() for name in splits}

    def resolve_split(self, split: str) -> str:
        """Checks the names in a split expression and replaces aliases such as "val"."""
        return resolve_split(split, tuple(self.splits), self.label)

    def named_in(self, split: str) -> tuple[str, ...]:
        """The splits that a split expression reads from."""
        return names_in(self.resolve_split(split))


class _Parts(Pairs):
    """Parts of splits, one after the other."""

    def __init__(self, parts: list[tuple[Split, int, int | None]]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for split, start, end in self._parts:
            yield from split.texts(start, end)

    @property
    def is_counted(self) -> bool:
        return all(split.is_counted for split, _, _ in self._parts)

    @functools.cached_property
    def _count(self) -> int:
        return sum(split.count(start, end) for split, start, end in self._parts)


class _Sizes(Mapping[str, int]):
    """The sizes of splits, each counted when it is asked for."""

    def __init__(self, splits: Mapping[str, Split]) -> None:
        self._splits = splits

    def __getitem__(self, name: str) -> int:
        return self._splits[name].size()

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)
