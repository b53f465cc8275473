"""Finds and reads parallel text files, and counts the lines that cannot be used."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from keras_addnorm.data.characters import is_blank

_FILE_NAME = re.compile(
    r"(?P<stem>train|val|valid|validation|dev|test[\w.-]*?)"
    r"\.(?P<language>[A-Za-z]{2,3}(?:[_-][A-Za-z]{2,4})?)(?P<gz>\.gz)?"
)
_VALIDATION_NAMES = frozenset({"val", "valid", "validation", "dev"})
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NAMING = (
    "Files are named <split>.<language>, plain or with .gz: train.en, train.de, val.en, val.de, "
    "test.en, test.de"
)


@dataclasses.dataclass(frozen=True)
class LineReport:
    """How many lines of a split became pairs, and why others were left out.

    Attributes:
        split: The name of the split.
        kept: The number of pairs that can be used.
        empty: Lines with nothing on one side or on both.
        invalid_utf8: Lines with bytes that are no UTF-8.
        too_long: Lines with more than `max_chars` characters on one side.
        max_chars: The longest side that is kept, in characters.
        first_bad_lines: The numbers (from 1) of the first few lines that were left out.

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
    first_bad_lines: tuple[int, ...] = ()

    @property
    def left_out(self) -> int:
        """The number of lines that were left out."""
        return self.empty + self.invalid_utf8 + self.too_long

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
        )
        said = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
        lines = ", ".join(map(str, self.first_bad_lines))
        more = ", ..." if self.left_out > len(self.first_bad_lines) else ""
        return (
            f"{self.split}: {self.kept:,} of {self.total:,} pairs kept; left out: {said} "
            f"(lines {lines}{more})"
        )


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
        self._counts = {"kept": 0, "empty": 0, "invalid_utf8": 0, "too_long": 0}
        self._bad_lines: list[int] = []

    def check(self, source: bytes, target: bytes) -> tuple[str, str] | None:
        """Decodes a pair of lines.

        Args:
            source: The line on the source side.
            target: The line on the target side.

        Returns:
            Both texts without surrounding white space, or `None` if the pair cannot be used.
        """
        verdict, pair = self._judge(source, target)
        self._counts[verdict] += 1
        if pair is None and len(self._bad_lines) < self._SHOWN:
            self._bad_lines.append(sum(self._counts.values()))
        return pair

    def report(self) -> LineReport:
        """The counts so far."""
        return LineReport(
            split=self._split,
            max_chars=self._max_chars,
            first_bad_lines=tuple(self._bad_lines),
            **self._counts,
        )

    def _judge(self, source: bytes, target: bytes) -> tuple[str, tuple[str, str] | None]:
        try:
            pair = (source.decode("utf-8").strip(), target.decode("utf-8").strip())
        except UnicodeDecodeError:
            return "invalid_utf8", None
        if any(map(is_blank, pair)):
            return "empty", None
        if max(map(len, pair)) > self._max_chars:
            return "too_long", None
        return "kept", pair


@dataclasses.dataclass(frozen=True)
class ParallelFiles:
    """The two files of one split, line n of one the translation of line n of the other.

    Attributes:
        split: The name of the split: ``"train"``, ``"validation"``, or the name of the test files.
        source: The file in the source language.
        target: The file in the target language.
    """

    split: str
    source: Path
    target: Path

    def check_line_counts(self) -> None:
        """Makes sure that both files have the same number of lines.

        Raises:
            ValueError: If the numbers differ; the message has both.
        """
        source_lines, target_lines = _count_lines(self.source), _count_lines(self.target)
        if source_lines != target_lines:
            raise ValueError(
                f"Line n of one file must be the translation of line n of the other, but "
                f"{self.source.name} has {source_lines:,} lines and {self.target.name} has "
                f"{target_lines:,} (in {self.source.parent}). Find where they diverge, for example "
                "with `paste`, and give both files the same number of lines."
            )

    def pairs(self, checker: LineChecker) -> Iterator[tuple[str, str]]:
        """Reads the pairs that can be used.

        Args:
            checker: Decides which pairs can be used, and counts them.

        Yields:
            Source and target text.
        """
        for source, target in zip(read_lines(self.source), read_lines(self.target), strict=True):
            pair = checker.check(source, target)
            if pair is not None:
                yield pair


def read_lines(path: Path) -> Iterator[bytes]:
    """Reads the lines of a plain or gzipped text file, as bytes without their line ends.

    Args:
        path: The file; a name that ends in ``.gz`` is decompressed.

    Yields:
        One line after the other. Only a line feed ends a line: Unicode's other line separators
        occur inside sentences. A byte order mark is left out.

    Raises:
        ValueError: If a ``.gz`` file is damaged or is no gzip file, or the text is UTF-16.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as lines:
            for number, line in enumerate(lines):
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                if number == 0 and text.startswith(_UTF_16_MARKS):
                    raise ValueError(
                        f"{path} is UTF-16 text, as its byte order mark says. Expected UTF-8. "
                        f"Convert it: iconv -f UTF-16 -t UTF-8 '{path}' > new-file"
                    )
                yield text.removeprefix(_BYTE_ORDER_MARK) if number == 0 else text
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be decompressed ({error}). Its name says gzip: fetch the file again, "
            "or take .gz off the name if it is plain text."
        ) from error


def find_languages(folder: Path) -> tuple[str, ...]:
    """The languages of the files in a folder of parallel text, in alphabetical order."""
    return tuple(sorted({language for _, language in _text_files(folder)}))


def find_parallel_files(folder: Path, source: str, target: str) -> tuple[ParallelFiles, ...]:
    """Finds the splits of a folder that have text in two languages.

    Args:
        folder: The folder.
        source: The source language, as in the files' names.
        target: The target language.

    Returns:
        The files of each split: train first, then validation, then the test sets by name.

    Raises:
        FileNotFoundError: If there is no parallel text, or a split has one side only.
    """
    files = _text_files(folder)
    found = []
    for split in sorted({split for split, _ in files}, key=_split_order):
        sides = [files.get((split, language)) for language in (source, target)]
        if not any(sides):
            continue
        if sides[0] is None or sides[1] is None:
            there = next(side for side in sides if side is not None)
            missing = source if sides[0] is None else target
            raise FileNotFoundError(
                f"The split {split!r} of {folder} has {there.name} but no file in {missing!r}. "
                f"{_NAMING}. Add the missing file, or move {there.name} out of the folder."
            )
        found.append(ParallelFiles(split, sides[0], sides[1]))
    return tuple(found)


def content_fingerprint(files: tuple[ParallelFiles, ...], max_chars: int) -> str:
    """Twelve digits of a SHA-256 over the contents of the files and `max_chars`."""
    digest = hashlib.sha256(f"1 {max_chars}".encode())
    for split in files:
        for path in (split.source, split.target):
            with path.open("rb") as content:
                digest.update(f"\n{split.split} {path.name} ".encode())
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:12]


def _text_files(folder: Path) -> dict[tuple[str, str], Path]:
    """The files of a folder by split and language; a plain file is preferred to its .gz."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no folder {folder}. Expected a folder of parallel text. {_NAMING}."
        )
    files: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        match = _FILE_NAME.fullmatch(path.name)
        if match is None or not path.is_file():
            continue
        stem = match["stem"]
        # A split name is a word to TensorFlow Datasets: test-2016.en is the split test_2016.
        split = "validation" if stem in _VALIDATION_NAMES else re.sub(r"\W", "_", stem)
        key = (split, match["language"])
        other = files.setdefault(key, path)
        if other.name not in (path.name, path.name.removesuffix(".gz")):
            raise ValueError(
                f"{folder} has two files for the split {key[0]!r} in {key[1]!r}: {other.name} and "
                f"{path.name}. Keep one of them in the folder."
            )
    if not files:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise FileNotFoundError(
            f"There is no parallel text in {folder}. {_NAMING}. The folder holds: {there}."
        )
    return files


def _count_lines(path: Path) -> int:
    return sum(1 for _ in read_lines(path))


def _split_order(split: str) -> tuple[int, str]:
    order = {"train": 0, "validation": 1}
    return order.get(split, 2), split
