"""Finds and reads parallel text files, and counts the lines that cannot be used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from keras_addnorm.basics.unicode_text import printable
from keras_addnorm.data.characters import is_blank
from keras_addnorm.data.file_names import (
    NAMING,
    SideFile,
    side_files,
    side_of_role,
    split_order,
)
from keras_addnorm.data.pair_sources import PairSource
from keras_addnorm.data.readers.input_file import InputFile
from keras_addnorm.data.readers.raw_pair import RawPair


@dataclasses.dataclass(frozen=True)
class LineReport:
    """How many lines of a split became pairs, and why others were left out.

    Attributes:
        split: The name of the split.
        kept: The number of pairs that can be used.
        empty: Lines with nothing on one side or on both.
        invalid_utf8: Lines with bytes that are no UTF-8.
        too_long: Lines with more than `max_chars` characters on one side.
        surplus: Rows with more columns than the others.
        no_text: Lines with a zero character (NUL), which no text has.
        max_chars: The longest side that is kept, in characters.
        first_bad_lines: The numbers (from 1) of the first few lines that were left out; with the
            file, `"a.tsv:7"`, where a split has several.

    Example:
        >>> from keras_addnorm.data import LineReport
        >>> report = LineReport("train", kept=8, empty=2, max_chars=1000, first_bad_lines=(3, 7))
        >>> print(report)
        train: 8 of 10 pairs kept; left out: 2 empty (lines 3, 7)
        >>> report.total
        10
    """

    split: str
    kept: int = 0
    empty: int = 0
    invalid_utf8: int = 0
    too_long: int = 0
    max_chars: int = 1000
    first_bad_lines: tuple[int | str, ...] = ()
    surplus: int = 0
    no_text: int = 0

    @property
    def left_out(self) -> int:
        """The number of lines that were left out."""
        return self.empty + self.invalid_utf8 + self.too_long + self.surplus + self.no_text

    @property
    def total(self) -> int:
        """The number of lines that were read."""
        return self.kept + self.left_out

    def __str__(self) -> str:
        """The report in one readable line."""
        if not self.left_out:
            return f"{self.split}: all {self.total:,} pairs kept"
        reasons = (
            (self.empty, "empty"),
            (self.invalid_utf8, "not UTF-8"),
            (self.too_long, f"longer than {self.max_chars:,} characters"),
            (self.surplus, "with more columns than the others"),
            (self.no_text, "with a zero character, which no text has"),
        )
        said = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
        lines = ", ".join(map(str, self.first_bad_lines))
        more = ", ..." if self.left_out > len(self.first_bad_lines) else ""
        return (
            f"{self.split}: {self.kept:,} of {self.total:,} pairs kept; left out: {said} "
            f"(lines {lines}{more})"
        )


LEFT_OUT = ("empty", "invalid_utf8", "too_long", "surplus", "no_text")
"""The counts of a `LineReport` that say why lines were left out."""


class LineChecker:
    """Decides which pairs of lines of a split can be used, and counts them.

    Args:
        split: The name of the split, for the report.
        max_chars: The longest side to keep, in characters.
    """

    _SHOWN = 5

    def __init__(self, split: str, max_chars: int) -> None:
        self._split = split
        self._max_chars = max_chars
        self._counts = dict.fromkeys(("kept", *LEFT_OUT), 0)
        self._bad_lines: list[int | str] = []

    def check(
        self,
        source: bytes | str,
        target: bytes | str,
        place: int | str | None = None,
        has_surplus: bool = False,
    ) -> tuple[str, str] | None:
        """Decodes a pair of lines.

        Args:
            source: The line on the source side.
            target: The line on the target side.
            place: Where the pair stands; by default the number of pairs that were checked.
            has_surplus: Whether its row has more columns than the others.

        Returns:
            Both texts without surrounding white space, or `None` if the pair cannot be used.
        """
        verdict, pair = ("surplus", None) if has_surplus else self.judge(source, target)
        self._counts[verdict] += 1
        if pair is None and len(self._bad_lines) < self._SHOWN:
            self._bad_lines.append(sum(self._counts.values()) if place is None else place)
        return pair

    def report(self) -> LineReport:
        """The counts so far."""
        return LineReport(
            split=self._split,
            max_chars=self._max_chars,
            first_bad_lines=tuple(self._bad_lines),
            **self._counts,
        )

    def judge(self, source: bytes | str, target: bytes | str) -> tuple[str, tuple[str, str] | None]:
        """Decides without counting: `kept` and both texts, or a reason and `None`."""
        try:
            pair = (_decoded(source).strip(), _decoded(target).strip())
        except UnicodeError:
            return "invalid_utf8", None
        if any(map(is_blank, pair)):
            return "empty", None
        if any("\0" in text for text in pair):
            return "no_text", None
        if max(map(len, pair)) > self._max_chars:
            return "too_long", None
        return "kept", pair


def _decoded(text: bytes | str) -> str:
    if isinstance(text, bytes):
        return text.decode("utf-8")
    text.encode("utf-8")  # Refuses the surrogates that stand for bytes of another encoding.
    return text


def readable(text: bytes | str) -> str:
    """A text with U+FFFD for what is not UTF-8, without surrounding white space.

    Args:
        text: Bytes, or a string that may hold surrogates.

    Returns:
        The text.
    """
    if isinstance(text, str):
        came_from_bytes = all(
            "\udc80" <= one <= "\udcff" for one in text if "\ud800" <= one <= "\udfff"
        )
        text = text.encode("utf-8", "surrogateescape" if came_from_bytes else "replace")
    return text.decode("utf-8", "replace").strip()


@dataclasses.dataclass(frozen=True)
class ParallelFiles(PairSource):
    """The two files of one split, line n of one the translation of line n of the other.

    Attributes:
        split: The name of the split: ``"train"``, ``"validation"``, or the name of the test files.
        source: The file in the source language.
        target: The file in the target language.
    """

    split: str
    source: InputFile
    target: InputFile

    def check(self) -> None:
        """Makes sure that both files have the same number of lines.

        Raises:
            ValueError: If the numbers differ; the message has both.
        """
        source_lines, target_lines = self.source.count_lines(), self.target.count_lines()
        if source_lines != target_lines:
            raise ValueError(
                f"Line n of one file must be the translation of line n of the other, but "
                f"{self.source.name} has {source_lines:,} lines and {self.target.name} has "
                f"{target_lines:,} (in {self.source.path.parent}). Find where they diverge, for "
                "example with `paste`, and give both files the same number of lines."
            )

    @property
    def label(self) -> str:
        """The names of both files."""
        return printable(f"{self.source.name} and {self.target.name}")

    @property
    def place(self) -> str:
        """The name of the first file."""
        return printable(self.source.name)

    def raw_pairs(self) -> Iterator[RawPair]:
        """Line by line."""
        lines = zip(self.source.lines(), self.target.lines(), strict=True)
        for number, (source, target) in enumerate(lines, 1):
            yield RawPair(source, target, number)


def find_languages(folder: Path | Sequence[InputFile], where: str = "") -> tuple[str, ...]:
    """The languages of the files in a folder of parallel text, in alphabetical order."""
    files, where = _files_of(folder, where)
    return tuple(sorted({one.language for one in _known(files, where)}))


def find_parallel_files(
    folder: Path | Sequence[InputFile], source: str, target: str, where: str = ""
) -> tuple[ParallelFiles, ...]:
    """Finds the splits of a folder that have text in two languages.

    Args:
        folder: The folder, or its files.
        source: The source language, as in the files' names. A file whose name has a role in place
            of a language, such as ``src-train.txt``, is in it.
        target: The target language.
        where: The name of the folder for messages, if its files are given.

    Returns:
        The files of each split: train first, then validation, then the test sets by name. If there
        is no ``train``, all corpora named like ``europarl-v7.de-en.de`` are.

    Raises:
        FileNotFoundError: If there is no parallel text, or a split has one side only.
        ValueError: If a split has two files for a language.
    """
    files, where = _files_of(folder, where)
    known = [one for one in _known(files, where) if _side(one, source, target) is not None]
    has_train = any(one.split == "train" and not one.is_corpus for one in known)
    found: list[ParallelFiles] = []
    for split in sorted({one.split for one in known}, key=split_order):
        here = [one for one in known if one.split == split]
        if split == "train" and not has_train:
            for form in sorted({one.form for one in here}):
                corpus = _both_sides(here, form, source, target, where)
                if None not in corpus:
                    found.append(ParallelFiles(split, *corpus))  # type: ignore[arg-type]
            continue
        here = [one for one in here if not one.is_corpus]
        found += _files_of_split(here, split, source, target, where)
    return tuple(found)


def _files_of_split(
    files: list[SideFile], split: str, source: str, target: str, where: str
) -> list[ParallelFiles]:
    """The two files of a split; of several forms of names the first that has both."""
    forms = sorted({one.form for one in files})
    sides = {form: _both_sides(files, form, source, target, where) for form in forms}
    whole = [form for form in forms if None not in sides[form]]
    if not whole and forms[0][0] > 0:
        return []  # A test set of other languages, such as newstest2014.fr.
    if not whole:
        first = sides[forms[0]]
        there = next(side for side in first if side is not None)
        missing = source if first[0] is None else target
        raise FileNotFoundError(
            f"The split {split!r} of {where} has {there.name} but no file in {missing!r}. "
            f"{NAMING}. Add the missing file, or move {there.name} out of the folder."
        )
    same = [form for form in whole if form[0] == whole[0][0]]
    if len(same) > 1:
        names = [sides[form][0] for form in same[:2]]
        _refuse_two(split, source, names[0], names[1], where)  # type: ignore[arg-type]
    return [ParallelFiles(split, *sides[whole[0]])]  # type: ignore[arg-type]


def _both_sides(
    files: Iterable[SideFile], form: tuple[int, str], source: str, target: str, where: str
) -> tuple[InputFile | None, InputFile | None]:
    """The files of a form in both languages; a plain file is preferred to its compressed copy."""
    sides: list[InputFile | None] = [None, None]
    for one in files:
        side = _side(one, source, target)
        if one.form != form or side is None:
            continue
        other = sides[side]
        if other is None:
            sides[side] = one.file
        elif other.plain_name == one.file.plain_name:
            sides[side] = other if not other.compression else one.file
        else:
            _refuse_two(one.split, one.language, other, one.file, where)
    return sides[0], sides[1]


def _refuse_two(split: str, language: str, one: InputFile, other: InputFile, where: str) -> None:
    raise ValueError(
        f"{where} has two files for the split {split!r} in {language!r}: {one.name} and "
        f"{other.name}. Keep one of them in the folder."
    )


def _side(file: SideFile, source: str, target: str) -> int | None:
    """0 for a file in the source language, 1 for one in the target language."""
    for side, wanted in enumerate((source, target)):
        if file.language == wanted:
            return side
    role = side_of_role(file.language)
    if role is not None and not {source, target} & {"src", "tgt", "trg"}:
        return role
    return None


def _files_of(folder: Path | Sequence[InputFile], where: str) -> tuple[list[InputFile], str]:
    """The files of a folder, and its name for messages."""
    if not isinstance(folder, Path):
        return list(folder), where
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no folder {folder}. Expected a folder of parallel text. {NAMING}."
        )
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    return [InputFile(path) for path in paths], str(folder)


def _known(files: Sequence[InputFile], where: str) -> list[SideFile]:
    """The files whose names tell split and language."""
    known = side_files(files)
    if not known:
        there = ", ".join(file.name for file in files[:8]) or "nothing"
        raise FileNotFoundError(
            f"There is no parallel text in {where}. {NAMING}; or a file holds both texts: .tsv, "
            f".csv, .jsonl, .parquet, .tmx, .xlf, .po. The folder holds: {there}."
        )
    return known
