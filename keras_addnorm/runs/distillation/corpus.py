"""The student's text: what the teacher said, filtered and with noise, and held-out pairs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import is_whole, to_file
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.text import parse_json
from keras_addnorm.data.line_report import LineChecker
from keras_addnorm.data.readers import InputFile
from keras_addnorm.data.readers.input_file import LONGEST_TEXT
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.data.text_noise import TextNoise
from keras_addnorm.runs.directory import write_text
from keras_addnorm.runs.distillation.stages import damaged
from keras_addnorm.runs.distillation.teacher import Sourced, Teacher
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.portions import Portions
from keras_addnorm.runs.rows import Rows, write_rows
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.text_data import load_pairs, run_pairs, test_splits

# The longest text of a run's data, in characters.
_MAX_CHARS = 1000
TEXT = "text"
"""The folder of parallel text in that of the stage."""
_REPORT = "report.json"


def write_pairs(config: RunConfig, monolingual: Iterable[str], teacher: Teacher, path: Path) -> str:
    """Writes what the teacher translates: the training pairs, then sources without a reference.

    Args:
        config: What is read.
        monolingual: Text files with more sources.
        teacher: The teacher.
        path: The file to write.

    Returns:
        The digest of the file.

    Raises:
        UserError: If there is nothing, or a file cannot be read.
    """

    def sourced() -> Iterator[Sourced]:
        yield from string_pairs(run_pairs(config).training)
        for name in monolingual:
            yield from ((line, None) for line in _lines(name))

    with as_user_errors():
        digest = write_rows(path, teacher.pairs(sourced()))
    if not path.stat().st_size:
        raise UserError(
            "There is nothing to learn from: the teacher has no translation of any source."
        )
    return digest


def _lines(name: str) -> Iterator[str]:
    file = InputFile(Path(name))
    file.refuse_wide_encoding()
    for number, line in enumerate(file.lines(), 1):
        if len(line) > LONGEST_TEXT:
            continue  # As any text that is too long; it was cut, maybe within a character.
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{file.label}, line {number} is not UTF-8 ({error.reason}). Expected text in "
                "UTF-8, a sentence a line. Mend or remove that line."
            ) from error
        if text and len(text) <= _MAX_CHARS:
            yield text


def held_out_splits(config: RunConfig) -> dict[str, list[tuple[str, str]]]:
    """Reads the pairs to validate on and those of each test set, every line of them."""
    found = {"validation": list(string_pairs(run_pairs(config).validation))}
    for name in test_splits(config):
        found[name] = list(load_pairs(config, name, keep_every_pair=True))
    return found


@dataclass(frozen=True)
class CorpusReport:
    """What became of the teacher's translations.

    Attributes:
        pairs: What the teacher was asked for.
        written: The pairs of the student's text.
        unusable: Those with an empty side, or too long.
        improbable: Those that the backward model has sorted out.
    """

    pairs: int
    written: int
    unusable: int
    improbable: int

    def __str__(self) -> str:
        """The report in a line."""
        left_out = f"{self.unusable:,} empty or too long"
        if self.improbable:
            left_out += f", {self.improbable:,} that the backward model finds improbable"
        return (
            f"{self.written:,} pairs to learn from, of {self.pairs:,} translations; left out: "
            f"{left_out}"
        )


def write_corpus(
    folder: Path,
    languages: tuple[str, str],
    pairs: Rows,
    translations: Portions[Sourced],
    is_kept: Iterable[bool],
    noise: TextNoise,
    held_out: Mapping[str, Iterable[tuple[str, str]]],
) -> CorpusReport:
    """Writes a folder with parallel text in `text/` and `report.json`, whole or not at all.

    Args:
        folder: The folder to make.
        languages: The codes of the two languages.
        pairs: The sources.
        translations: The teacher's results.
        is_kept: Whether the filter keeps each.
        noise: What is done to some pairs.
        held_out: The pairs of each other split.

    Returns:
        What became of the translations.

    Raises:
        UserError: If no pair is left.
    """
    checker, improbable, written = LineChecker("train", _MAX_CHARS), 0, 0
    with atomic_folder(folder) as temporary:
        text_folder = temporary / TEXT
        text_folder.mkdir()
        with _side_files(text_folder, "train", languages) as files:
            rows = zip(pairs, translations, is_kept, strict=True)
            for number, ((source, _), (text, *_), is_good) in enumerate(rows):
                pair = checker.check(_one_line(source), _one_line(text))
                if pair is None:
                    continue
                if not is_good:
                    improbable += 1
                    continue
                for one in noise(number, *pair):
                    written += _write(files, one)
        for split, some in held_out.items():
            with _side_files(text_folder, split, languages) as files:
                for one in some:
                    _write(files, one)
        report = CorpusReport(len(pairs), written, checker.report().left_out, improbable)
        if not written:
            raise UserError(
                f"No pair is left to train the student on: {report}. Look at the teacher's "
                f"translations in {str(translations.folder)!r}."
            )
        write_text(temporary / _REPORT, json.dumps(asdict(report), indent=1) + "\n")
    return report


def read_report(folder: Path) -> CorpusReport:
    """Reads what became of the translations."""
    path = folder / _REPORT
    try:
        with as_user_errors():
            report = CorpusReport(**parse_json(to_file(path).read_bytes()))
    except UserError as error:
        raise damaged(path, error) from error
    if not all(is_whole(count, 0) for count in vars(report).values()):
        raise damaged(path, "a number of pairs is none")
    return report


@contextlib.contextmanager
def _side_files(
    folder: Path, split: str, languages: tuple[str, str]
) -> Iterator[tuple[TextIO, ...]]:
    with contextlib.ExitStack() as stack:
        yield tuple(
            stack.enter_context((folder / f"{split}.{code}").open("w", encoding="utf-8"))
            for code in languages
        )


def _write(files: tuple[TextIO, ...], pair: tuple[str, str]) -> int:
    for file, text in zip(files, pair, strict=True):
        file.write(f"{_one_line(text)}\n")
    return 1


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
