"""Finds the sentence pairs of a path: a folder, a zip archive, one file, or the standard input."""

from __future__ import annotations

import atexit
import dataclasses
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from keras_addnorm.basics.argument_checks import to_file, to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.languages import (
    code_of,
    has_form_of_code,
    note_unknown,
    require_code,
    tidy,
)
from keras_addnorm.basics.printing import listed, printable
from keras_addnorm.data.file_names import (
    NAMING,
    VALIDATION_NAMES,
    side_files,
    side_of_role,
    split_order,
    table_files,
)
from keras_addnorm.data.language_check import notes_on
from keras_addnorm.data.pair_sources import PairFile
from keras_addnorm.data.parallel_files import find_languages, find_parallel_files
from keras_addnorm.data.readers import (
    READERS,
    InputFile,
    Reader,
    has_data_ending,
    reader_by_name,
    reader_of,
)
from keras_addnorm.data.readers.input_file import members
from keras_addnorm.data.request import ReaderChoice, Request
from keras_addnorm.data.translation_set import TranslationSet

STANDARD_INPUT = "-"
THE_STANDARD_INPUT = "the standard input"
"""What messages call it."""


def looks_like_path(name_or_folder: str | os.PathLike[str]) -> bool:
    """Whether a name is one of a file or folder, whether there or not."""
    name = os.fspath(name_or_folder)
    return (
        not isinstance(name_or_folder, str)
        or name.startswith((".", "/", "~", os.sep))
        or name == STANDARD_INPUT
        or name.count("/") > 1
        or has_data_ending(name)
        or os.path.exists(name)
    )


def open_path(request: Request) -> TranslationSet:
    """Finds the sentence pairs of a path.

    Args:
        request: What is wanted; its `data` is a folder, a zip archive, a file, or `-` for the
            standard input, which is kept in a temporary file until the process ends.

    Returns:
        The pairs of each split, and notes on how they were found and on languages that texts do
        not look like.

    Raises:
        FileNotFoundError: If there is nothing to read, or a split has one side only.
        ValueError: If the languages are not there or are no codes, or the direction is open.
    """
    path = to_path(request.data).expanduser()
    if os.fspath(request.data) == STANDARD_INPUT:
        path = _standard_input()
        request = dataclasses.replace(request, stands_for=THE_STANDARD_INPUT)
    for argument, language in (("source", request.source), ("target", request.target)):
        if language is not None:
            require_code(argument, language)
    found = _find(path, request)
    languages = found.source, found.target
    for language in languages:
        if not has_form_of_code(language):  # It becomes a part of names of files.
            raise ValueError(
                f"{found.label} names the language {language[:80]!r}, which has not the form of a "
                "code: letters and digits, in parts joined by '-' or '_', such as 'de' or 'pt-BR'. "
                "Mend the file, or name both languages."
            )
    asked = (request.source, request.target)
    given = [one for one in languages if one in asked and side_of_role(one) is None]
    unknown = tuple(filter(None, map(note_unknown, given)))
    notes = dict.fromkeys((*found.notes, *unknown, *notes_on(found.sources, languages)))
    return dataclasses.replace(found, notes=tuple(notes))


def _find(path: Path, request: Request) -> TranslationSet:
    if path.is_dir():
        return _find_in_folder(path, request)
    path = to_file(path)
    if not path.exists():
        if (path.suffix and reader_by_name(InputFile(path))) or path.suffix == ".zip":
            raise FileNotFoundError(printable(f"There is no file {path}. Check the path."))
        raise FileNotFoundError(
            printable(f"There is no folder {path}. Expected a folder of parallel text. {NAMING}.")
        )
    if zipfile.is_zipfile(path):
        label = printable(f"the archive {path}")
        return _find_among(members(path), path, label, request)
    label = request.stands_for or printable(f"the file {path}")
    file = InputFile(path, stands_for=request.stands_for)
    return _find_in_tables({"train": (file,)}, label, request)


def _find_in_folder(folder: Path, request: Request) -> TranslationSet:
    label = printable(f"the folder {folder}")
    top = [InputFile(path) for path in sorted(folder.iterdir()) if path.is_file()]
    if side_files(top) or table_files(top):
        return _find_among(top, folder, label, request)
    # What Hugging Face writes: data/train-00000-of-00001.parquet, train/data-00000-of-00001.arrow
    below: dict[str, list[InputFile]] = {}
    for path in sorted(folder.glob("*/*")):
        if path.is_file() and not path.parent.name.startswith("."):
            below.setdefault(path.parent.name, []).append(InputFile(path))
    below = {name: files for name, files in below.items() if table_files(files)}
    as_splits = [name for name in below if name == "data" or _is_split(name)]
    if len(below) - len(as_splits) > 1:
        raise ValueError(
            f"{folder} holds several sets of sentence pairs, in the folders {listed(below)}. Give "
            "one of these."
        )
    files = [file for some in below.values() for file in some]
    return _find_among(files or top, folder, label, request)


def _is_split(folder: str) -> bool:
    return folder == "train" or folder in VALIDATION_NAMES or folder.startswith("test")


def _find_among(
    files: Sequence[InputFile], path: Path, label: str, request: Request
) -> TranslationSet:
    """Pairs of parallel files, else of files with both texts."""
    source, target = request.source, request.target
    sides = side_files(files)
    tables = table_files(files)
    if tables and not any(side.split == "train" for side in sides):
        return _find_in_tables(tables, label, request)
    languages = find_languages(files, str(path))
    if all(side_of_role(name) is not None for name in languages):
        roles = [source or "src", target or "tgt"]
        direction = (roles[0], roles[1])
    else:
        # Names of files may spell a code in another way: pt_BR for pt-BR.
        asked = {tidy(name): name for name in (source, target) if name is not None}
        spelt = (asked.get(tidy(name), name) for name in languages if side_of_role(name) is None)
        named = list(dict.fromkeys(spelt))
        direction = choose_direction(named, None, source, target, label)
    found = find_parallel_files(files, *direction, str(path))
    used = {file.name for one in found for file in (one.source, one.target)}
    rest = sorted({one.file.name for one in sides if one.is_corpus and one.file.name not in used})
    notes = (
        [printable(f"Not read, as there is a file of the split 'train': {', '.join(rest)}.")]
        if rest
        else []
    )
    return TranslationSet.of(request, found, direction, label, notes)


def _find_in_tables(
    tables: Mapping[str, tuple[InputFile, ...]], label: str, request: Request
) -> TranslationSet:
    first = next(iter(tables.values()))[0]
    direction = _direction_of_table(first, label, request)
    sources = []
    for split in sorted(tables, key=split_order):
        for file in tables[split]:
            own = _reader_for(file, request.reader)
            sources.append(PairFile(split, file, own, own.columns(file, *direction)))
    return TranslationSet.of(request, sources, direction, label)


def _reader_for(file: InputFile, reader: ReaderChoice) -> Reader:
    if reader is None:
        return reader_of(file)
    if isinstance(reader, Mapping) and "name" not in reader:
        return reader_of(file, reader)
    return READERS.get(dict(reader) if isinstance(reader, Mapping) else reader)


def _direction_of_table(file: InputFile, label: str, request: Request) -> tuple[str, str]:
    source, target = request.source, request.target
    if source is not None and target is not None:
        return choose_direction((source, target), None, source, target, label)
    languages = tuple(_reader_for(file, request.reader).languages(file))
    if len(languages) < 2:
        raise ArgumentError(
            f"{label} does not say which languages it has.",
            remedy="Say both, for example `source='en'`, `target='de'`.",
            source=source,
            target=target,
        )
    # A header may say `English`; the setting, and a folder, say `en`.
    languages = tuple(dict.fromkeys(map(code_of, languages)))
    default = (languages[0], languages[1]) if len(languages) == 2 else None
    return choose_direction(languages, default, source, target, label)


def choose_direction(
    languages: Iterable[str],
    default: tuple[str, str] | None,
    source: str | None,
    target: str | None,
    label: str,
) -> tuple[str, str]:
    """Chooses source and target from the request, the languages that there are, and the default."""
    languages = tuple(languages)
    for argument, language in (("source", source), ("target", target)):
        if language is not None and language not in languages:
            code = code_of(language)
            hint = f" Did you mean {code!r}?" if code in languages else ""
            raise ValueError(
                f"{label} has no language {language[:80]!r} for {argument}. It has "
                f"{listed(languages)}."
                f"{hint}"
            )
    if source is not None and source == target:
        raise ArgumentError(
            f"`source` and `target` are both {source!r}; choose two of {listed(languages)}."
        )
    if source is None and target is None and default is not None:
        return default
    candidates = [
        (first, second)
        for first in languages
        for second in languages
        if first != second and source in (None, first) and target in (None, second)
    ]
    if len(candidates) != 1:
        raise ArgumentError(
            f"{label} has the languages {listed(languages)}, and the direction is open.",
            remedy=f"Say both, for example `source={languages[0]!r}`, `target={languages[-1]!r}`.",
            source=source,
            target=target,
        )
    return candidates[0]


def _standard_input() -> Path:
    """Writes the standard input to a file that stays until the process ends."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "stdin")
    save_standard_input(path)
    return path


def save_standard_input(path: Path) -> None:
    """Writes the standard input to a file.

    Args:
        path: The file.

    Raises:
        ValueError: If nothing comes.
    """
    with path.open("wb") as file:
        shutil.copyfileobj(getattr(sys.stdin, "buffer", sys.stdin), file)
    if not os.path.getsize(path):
        raise ValueError("The standard input is empty. Expected sentence pairs, one a line.")
