"""Looks through sentence pairs before a training, and writes a clean copy of them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import UserError, unknown_name
from keras_addnorm.basics.languages import require_code
from keras_addnorm.basics.printing import printable
from keras_addnorm.data.file_names import side_files
from keras_addnorm.data.line_report import LEFT_OUT, LineReport
from keras_addnorm.data.loading import is_built_in, open_translation
from keras_addnorm.data.open_files import looks_like_path
from keras_addnorm.data.overlap import HeldOutTexts
from keras_addnorm.data.pair_faults import (
    FAULTS,
    CorpusStatistics,
    FaultCounter,
    OtherPairs,
    spoiling_faults,
)
from keras_addnorm.data.readers import InputFile
from keras_addnorm.data.request import ReaderChoice, Request
from keras_addnorm.data.translation_set import PlacedPair, Split, TranslationSet
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.forked_map import map_in_order
from keras_addnorm.runs.process_startup import import_tensorflow_quietly

_TRAINING, _VALIDATION = "train", "validation"
_WIDTH = 60


@dataclass
class SideReport:
    """The texts of one language of a split.

    Attributes:
        language: The language.
        characters: All characters.
        words: All words, as spaces divide them.
        longest: The characters of the longest text.
        scripts: How many texts are in each script.
    """

    language: str
    characters: int = 0
    words: int = 0
    longest: int = 0
    scripts: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        """Counts a text."""
        self.characters += len(text)
        self.words += len(text.split())
        self.longest = max(self.longest, len(text))

    def add_all(self, later: SideReport) -> None:
        """Counts the texts of another report."""
        self.characters += later.characters
        self.words += later.words
        self.longest = max(self.longest, later.longest)


@dataclass
class SplitReport:
    """What is in a split.

    Attributes:
        name: Its name.
        lines: What was kept and left out of its lines.
        sides: Its texts by language.
        faults: How many pairs have each fault.
        first: Place and texts of the first pair with each fault.
        statistics: What is usual in it.
    """

    name: str
    lines: LineReport
    sides: tuple[SideReport, SideReport]
    faults: dict[str, int]
    first: dict[str, tuple[str, tuple[str, str]]]
    statistics: CorpusStatistics

    def __str__(self) -> str:
        out = [str(self.lines)]
        pairs = max(1, self.lines.kept)
        for side in self.sides:
            scripts = ", ".join(
                f"{name} {count / max(1, side.scripts.total()):.1%}"
                for name, count in side.scripts.most_common(3)
            )
            out.append(
                f"  {side.language:<5} {side.characters / pairs:.0f} characters and "
                f"{side.words / pairs:.1f} words a text, the longest {side.longest:,} characters; "
                f"{scripts or 'no letters'}"
            )
        first, second = self.sides
        if first.characters:
            ratio = second.characters / first.characters
            out.append(f"  {second.language} has {ratio:.2f} characters to one of {first.language}")
        found = {name: count for name, count in self.faults.items() if count}
        for name, count in found.items():
            place, pair = self.first[name]
            share = count / pairs
            out.append(f"  {count:>9,} {share:>6.1%}  {name:<15} {FAULTS[name].says}")
            out.append(f"{'':21}first: {place}  {_shortened(pair)}")
        if not found:
            out.append("  no pair has a fault")
        return "\n".join(out)


@dataclass
class CorpusReport:
    """What is in some data.

    Attributes:
        splits: A report of each split, training first.
        notes: What the user should know about how the data were read.
    """

    splits: list[SplitReport]
    notes: list[str]

    def __str__(self) -> str:
        return "\n".join([*self.notes, *map(str, self.splits)])


@dataclass
class CorpusSplits:
    """Data from one or several places, in splits of the same name.

    Attributes:
        source: The source language.
        target: The target language.
        training: The splits of training pairs.
        held_out: The other splits, by name.
        notes: How they are read.
    """

    source: str
    target: str
    training: list[Split]
    held_out: dict[str, list[Split]]
    notes: list[str]

    @classmethod
    def opened(
        cls,
        inputs: Sequence[str],
        tests: Sequence[str] = (),
        *,
        source: str | None = None,
        target: str | None = None,
        max_chars: int = 1000,
        reader: ReaderChoice = None,
    ) -> CorpusSplits:
        """Opens all inputs.

        Args:
            inputs: Files, folders, archives, names of data sets, or `-` for the standard input.
            tests: The same for test sets; all of their splits are.
            source: The source language.
            target: The target language.
            max_chars: The longest side to keep, in characters.
            reader: The format, or columns, as `load_translation` takes them.

        Returns:
            The corpus.

        Raises:
            UserError: If something is not there, or has other languages than the first one.
        """
        with as_user_errors():
            corpus: CorpusSplits | None = None
            for name, is_test in [*((n, False) for n in inputs), *((n, True) for n in tests)]:
                if not (looks_like_path(name) or is_built_in(name)):
                    import_tensorflow_quietly()
                found = open_translation(
                    Request(name, source, target, reader=reader, max_chars=max_chars)
                )
                source, target = found.source, found.target
                corpus = corpus or cls(source, target, [], {}, [])
                corpus._add(name, found, is_test)
            return corpus or cls(str(source), str(target), [], {}, [])

    def _add(self, name: str, found: TranslationSet, is_test: bool) -> None:
        self.notes += found.notes
        for split in found.splits.values():
            split.check()
            if split.name == _TRAINING and not is_test:
                self.training.append(split)
                continue
            label = Path(name).name if split.name == _TRAINING else split.name
            self.held_out.setdefault(label, []).append(split)

    def other_pairs(self) -> OtherPairs:
        """What the training pairs are compared with."""
        splits = itertools.chain.from_iterable(self.held_out.values())
        return OtherPairs(HeldOutTexts(pair.texts for split in splits for pair in split.placed()))


def examine(corpus: CorpusSplits, processes: int = 1) -> CorpusReport:
    """Reads all pairs once, and the held-out ones twice; several processes look at them."""
    with as_user_errors():
        splits = []
        if corpus.training:
            others = corpus.other_pairs()
            splits.append(_examine_split(_TRAINING, corpus.training, corpus, others, processes))
        # Against themselves these would all be held out.
        splits += [
            _examine_split(name, parts, corpus, OtherPairs(), processes)
            for name, parts in corpus.held_out.items()
        ]
    return CorpusReport(splits, corpus.notes)


def _examine_split(
    name: str,
    parts: Sequence[Split],
    corpus: CorpusSplits,
    others: OtherPairs,
    processes: int,
) -> SplitReport:
    def empty() -> tuple[FaultCounter, SideReport, SideReport]:
        return FaultCounter(OtherPairs()), SideReport(corpus.source), SideReport(corpus.target)

    def look_at(chunk: _Chunk) -> tuple[FaultCounter, SideReport, SideReport]:
        found = empty()
        for pair, is_repeated in chunk:
            found[0].add(pair.texts, pair.place, known[is_repeated])
            for side, text in zip(found[1:], pair.texts, strict=True):
                side.add(text)
        return found

    known = others.knowing(False), others.knowing(True)
    counter, *sides = empty()
    for _, (counts_of_chunk, *sides_of_chunk) in map_in_order(
        look_at, _chunks(parts, others), processes
    ):
        counter.add_all(counts_of_chunk)
        for side, later in zip(sides, sides_of_chunk, strict=True):
            side.add_all(later)
    counts = counter.counts()
    for index, side in enumerate(sides):
        for features, count in counter.features.items():
            if features.scripts[index]:
                side.scripts[features.scripts[index]] += count
    lines = _sum(name, parts)
    return SplitReport(
        name,
        lines,
        (sides[0], sides[1]),
        counts,
        counter.first,
        CorpusStatistics.of(counter.features),
    )


# Pairs, and whether each has come before: that takes all pairs before it, and so one process.
_Chunk = list[tuple[PlacedPair, bool]]
_PAIRS_IN_CHUNK = 4096


def _chunks(parts: Iterable[Split], others: OtherPairs) -> Iterator[_Chunk]:
    pairs = (pair for part in parts for pair in part.placed())
    while chunk := [
        (pair, others.is_repeated(pair.texts)) for pair in itertools.islice(pairs, _PAIRS_IN_CHUNK)
    ]:
        yield chunk


def _sum(name: str, parts: Sequence[Split]) -> LineReport:
    reports = [part.report for part in parts if part.report]
    places = [
        line if isinstance(line, str) else f"{part.sources[0].place}:{line}"
        for part in parts
        if part.report
        for line in part.report.first_bad_lines
    ]
    return LineReport(
        name,
        **{count: sum(getattr(one, count) for one in reports) for count in ("kept", *LEFT_OUT)},
        max_chars=reports[0].max_chars if reports else 1000,
        first_bad_lines=tuple(places[:5]),
    )


def require_faults(names: Iterable[str]) -> None:
    """Checks names of faults."""
    for name in names:
        if name not in FAULTS:
            raise unknown_name("fault", name, FAULTS)


def write_clean(
    corpus: CorpusSplits,
    report: CorpusReport,
    folder: str | Path,
    keep: Sequence[str] = (),
    processes: int = 1,
) -> str:
    """Writes a folder of parallel text without the training pairs that have a fault.

    Held-out sets are written whole, each line of them: a test set that loses lines is another one.
    Pairs with the faults named in `keep` stay. Returns a line for each split that was written.
    """
    require_faults(keep)
    for language in (corpus.source, corpus.target):
        with as_user_errors():
            require_code("language", language)  # It is the ending of names of files.
    said = []
    with as_user_errors(), atomic_folder(folder) as temporary:
        if corpus.training:
            statistics = next(one.statistics for one in report.splits if one.name == _TRAINING)
            said.append(_write_training(corpus, statistics, temporary, keep, processes))
        stems: list[str] = []
        for name, parts in corpus.held_out.items():
            stem = _stem(name, stems)
            stems.append(stem)
            pairs = (pair for part in parts for pair in part.every_pair())
            count = _write(pairs, temporary, stem, corpus)
            said.append(f"{stem}: all {count:,} pairs")
    where = f"{to_path(folder)}/<split>.{corpus.source} and .{corpus.target}"
    return "\n".join([f"Written: {where}", *(f"  {line}" for line in said)])


def _write_training(
    corpus: CorpusSplits,
    statistics: CorpusStatistics,
    folder: Path,
    keep: Sequence[str],
    processes: int,
) -> str:
    others = corpus.other_pairs()
    known = others.knowing(False), others.knowing(True)
    dropped: Counter[str] = Counter()
    total = 0

    def first_faults(chunk: _Chunk) -> list[str | None]:
        return [
            next(
                (
                    name
                    for name in spoiling_faults(pair.texts, known[is_repeated], statistics)
                    if name not in keep
                ),
                None,
            )
            for pair, is_repeated in chunk
        ]

    def clean() -> Iterator[tuple[str, str]]:
        nonlocal total
        chunks = _chunks(corpus.training, others)
        for chunk, faults in map_in_order(first_faults, chunks, processes):
            total += len(chunk)
            for (pair, _), fault in zip(chunk, faults, strict=True):
                if fault is None:
                    yield pair.texts
                else:
                    dropped[fault] += 1

    count = _write(clean(), folder, _TRAINING, corpus)
    if not count:
        raise UserError(
            f"No training pair is left of {total:,}: {dict(dropped)}. Nothing was written. Keep "
            f"some of these, for example with --keep {next(iter(dropped), 'duplicates')}."
        )
    reasons = ", ".join(f"{n:,} {name}" for name, n in dropped.most_common()) or "none dropped"
    return f"{_TRAINING}: {count:,} of {total:,} pairs ({reasons})"


def _write(pairs: Iterable[tuple[str, str]], folder: Path, stem: str, corpus: CorpusSplits) -> int:
    count = 0
    paths = [folder / f"{stem}.{language}" for language in (corpus.source, corpus.target)]
    with (
        paths[0].open("w", encoding="utf-8", newline="\n") as first,
        paths[1].open("w", encoding="utf-8", newline="\n") as second,
    ):
        for pair in pairs:
            count += 1
            for file, text in zip((first, second), pair, strict=True):
                # A text of a table may have several lines, a text of a file has one.
                file.write(" ".join(text.splitlines()) + "\n")
    return count


def _stem(name: str, taken: Sequence[str]) -> str:
    """A free name for files, which is read back as the same split, else as a test set."""
    plain = re.sub(r"\W", "_", Path(name).name.partition(".")[0])
    is_read_back = [one.split for one in side_files([InputFile(Path(f"{plain}.en"))])] == [plain]
    if name == _VALIDATION:
        plain = "val"
    elif not is_read_back or plain in (_TRAINING, _VALIDATION):
        plain = f"test_{plain}"
    numbered = (f"{plain}_{number}" for number in itertools.count(2))
    return next(stem for stem in itertools.chain([plain], numbered) if stem not in taken)


def _shortened(pair: tuple[str, str]) -> str:
    # Control characters would be followed by the terminal.
    return printable(
        " | ".join(text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..." for text in pair).replace(
            "\n", " "
        )
    )
