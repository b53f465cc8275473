"""Finds and reads two parallel text files, one a language."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from keras_addnorm.basics.languages import tidy
from keras_addnorm.basics.printing import printable
from keras_addnorm.data.file_names import (
    NAMING,
    SideFile,
    side_files,
    side_of_role,
    split_order,
)
from keras_addnorm.data.pair_sources import PairSource
from keras_addnorm.data.readers.input_file import LONGEST_TEXT, InputFile
from keras_addnorm.data.readers.raw_pair import LongRow, RawPair

Key = TypeVar("Key", bound=Hashable)


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

    def fingerprint(self) -> str:
        """The digests of both files."""
        return f"{self.source.digest()} {self.target.digest()}"

    def raw_pairs(self) -> Iterator[RawPair]:
        """Line by line."""
        lines = zip(self.source.lines(), self.target.lines(), strict=True)
        for number, (source, target) in enumerate(lines, 1):
            is_long = max(len(source), len(target)) > LONGEST_TEXT
            yield LongRow.at(number) if is_long else RawPair(source, target, number)


def find_languages(files: Sequence[InputFile], where: str) -> tuple[str, ...]:
    """The languages of files of parallel text, in alphabetical order."""
    return tuple(sorted({one.language for one in _known(files, where)}))


def find_parallel_files(
    files: Sequence[InputFile], source: str, target: str, where: str
) -> tuple[ParallelFiles, ...]:
    """Finds the splits that have text in two languages.

    Args:
        files: The files of a folder.
        source: The source language, as in the files' names. A file whose name has a role in place
            of a language, such as ``src-train.txt``, is in it.
        target: The target language.
        where: The name of the folder for messages.

    Returns:
        The files of each split: train first, then validation, then the test sets by name. If there
        is no ``train``, all corpora named like ``europarl-v7.de-en.de`` are.

    Raises:
        FileNotFoundError: If there is no parallel text, or a split has one side only.
        ValueError: If a split has two files for a language.
    """
    known = [one for one in _known(files, where) if _side(one, source, target) is not None]
    has_train = any(one.split == "train" and not one.is_corpus for one in known)
    found: list[ParallelFiles] = []
    splits = _grouped(known, lambda one: one.split)
    for split in sorted(splits, key=split_order):
        here = splits[split]
        if split == "train" and not has_train:
            for _, files_of_form in sorted(_grouped(here, lambda one: one.form).items()):
                corpus = _both_sides(files_of_form, source, target, where)
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
    of_forms = sorted(_grouped(files, lambda one: one.form).items())
    forms = [form for form, _ in of_forms]
    sides = {form: _both_sides(some, source, target, where) for form, some in of_forms}
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


def _grouped(
    files: Iterable[SideFile], key: Callable[[SideFile], Key]
) -> dict[Key, list[SideFile]]:
    """The files by what a key says of each."""
    found: dict[Key, list[SideFile]] = {}
    for one in files:
        found.setdefault(key(one), []).append(one)
    return found


def _both_sides(
    known: Sequence[SideFile], source: str, target: str, where: str
) -> tuple[InputFile | None, InputFile | None]:
    """The files of a form in both languages; a plain file is preferred to its compressed copy."""
    sides: list[InputFile | None] = [None, None]
    spelt = {one.language for one in known}
    for one in known:
        side = _side(one, source, target)
        # Of pt_BR and pt-BR, the one that is spelt as asked for.
        if side is None or (one.language != (source, target)[side] in spelt):
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
        if tidy(file.language) == tidy(wanted):
            return side
    role = side_of_role(file.language)
    if role is not None and not {source, target} & {"src", "tgt", "trg"}:
        return role
    return None


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
