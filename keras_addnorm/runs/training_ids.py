"""The training pairs of a run as token ids on the disk: made once, and mapped by every start."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_addnorm import __version__
from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import is_whole, to_file
from keras_addnorm.basics.integrity import DamagedFileError
from keras_addnorm.basics.text import parse_json
from keras_addnorm.data import LineReport, TokenizerPair, tokenizer_pair
from keras_addnorm.data.corpus import TokenizedPairs
from keras_addnorm.data.overlap import HeldOutTexts
from keras_addnorm.data.pair_faults import FaultCounter, OtherPairs
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.distribution import is_first
from keras_addnorm.runs.directory import RunDirectory, write_text
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.settings import FILE_SETTINGS, SPLIT_SETTINGS, RunConfig
from keras_addnorm.runs.text_data import RunPairs, digest_of_tokenizers

_CONTENTS = "contents.json"
_FILES = {_CONTENTS, "source.npy", "source_offsets.npy", "target.npy", "target_offsets.npy"}
# What else decides about ids and check: with another one, all are made anew.
_VERSION = 1


@dataclass(frozen=True)
class TrainingIds:
    """The training pairs, tokenised, and what was found when they were read.

    Attributes:
        pairs: Their ids.
        faults: How many pairs have each fault, by name.
        lines: What was kept and left out of the lines of each split.
    """

    pairs: TokenizedPairs
    faults: Mapping[str, int]
    lines: tuple[LineReport, ...]


def training_ids(
    config: RunConfig,
    directory: RunDirectory,
    pairs: RunPairs,
    tokenizers: TokenizerPair,
    say: Callable[[str], None] = lambda line: None,
) -> TrainingIds:
    """Returns the ids of a run's training pairs, and the check of these.

    The first start reads and tokenises the text, some pairs at a time, and writes `token_ids/` in
    the run directory. Later ones, and the other processes of a training, map these files. They are
    made anew if texts, splits or tokenizers have changed, or a file is damaged.

    Args:
        config: The run's configuration.
        directory: Where they are kept, beside the tokenizers.
        pairs: The pairs.
        tokenizers: The run's tokenizers.
        say: Takes lines for the user.

    Returns:
        The ids and the check.

    Raises:
        UserError: If the texts cannot be read, or there is no room for the ids.
    """
    folder = directory.token_ids
    with as_user_errors():
        if not is_first():  # The first one has just looked.
            return _read(folder)[1]
        made_of = _made_of(config, directory, pairs)
        if folder.is_dir():
            try:
                if directory.verify:
                    directory.manifest.check(folder)
                before, found = _read(folder)
                if before == made_of:
                    return found
            except (DamagedFileError, ValueError, OSError) as error:
                what, *_ = str(error).split(". ")
                say(f"Warning: the token ids of the training pairs are made anew. {what}.")
            else:
                say("The training pairs or their tokenizers have changed: tokenised anew.")
        with directory.manifest.rewriting(folder):
            remove_files(folder, _FILES)
            with atomic_folder(folder) as temporary:
                _write(temporary, made_of, pairs, tokenizers)
        return _read(folder)[1]


def remove_preparation(directory: RunDirectory) -> None:
    """Removes the tokenizers and the ids of a run, and nothing that others have put there."""
    directory.manifest.forget(directory.tokenizer, directory.token_ids)
    remove_files(directory.tokenizer, tokenizer_pair.FILES)
    remove_files(directory.token_ids, _FILES)


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Removes files of a folder, and the folder if nothing else is in it."""
    with contextlib.suppress(OSError):
        for name in names:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _made_of(config: RunConfig, directory: RunDirectory, pairs: RunPairs) -> dict[str, Any]:
    """What decides about the ids and the check: texts, splits, tokenizers, versions."""
    settings = {name: getattr(config, name) for name in (*FILE_SETTINGS, *SPLIT_SETTINGS)}
    return {
        "version": _VERSION,
        "library": __version__,
        "unicode": unicodedata.unidata_version,
        "settings": {**settings, "source": config.source, "target": config.target},
        "texts": pairs.fingerprint(),
        "tokenizers": digest_of_tokenizers(directory.tokenizer),
    }


def _write(
    folder: Path, made_of: dict[str, Any], pairs: RunPairs, tokenizers: TokenizerPair
) -> None:
    held_out = itertools.chain(string_pairs(pairs.validation), string_pairs(pairs.others))
    counter = FaultCounter(OtherPairs(HeldOutTexts(held_out)))
    TokenizedPairs.of(counter.watch(string_pairs(pairs.training)), tokenizers, folder)
    contents = {
        "made_of": made_of,
        "faults": counter.counts(),
        "lines": [dataclasses.asdict(one) for one in pairs.line_reports().values()],
    }
    write_text(folder / _CONTENTS, json.dumps(contents, indent=1, ensure_ascii=False) + "\n")


def _read(folder: Path) -> tuple[dict[str, Any], TrainingIds]:
    """What the ids were made of, and the ids; a `ValueError` says that they are damaged."""
    contents = parse_json(to_file(folder / _CONTENTS).read_bytes())
    try:
        lines = [_line_report(one) for one in contents["lines"]]
        made_of, faults = dict(contents["made_of"]), dict(contents["faults"])
        if not all(is_whole(count, 0) for count in faults.values()):
            raise ValueError("a number of faults is none")
    except (TypeError, KeyError, ValueError) as error:
        path = str(folder / _CONTENTS)
        raise DamagedFileError(f"The file {path!r} is not what was written: {error!r}.") from error
    return made_of, TrainingIds(TokenizedPairs.mapped(folder), faults, tuple(lines))


def _line_report(values: Any) -> LineReport:
    """A report as it was written; a `ValueError` says that it is none."""
    bad_lines = tuple(values["first_bad_lines"])
    report = LineReport(**{**values, "first_bad_lines": bad_lines})
    counts = [
        value for name, value in vars(report).items() if name not in ("split", "first_bad_lines")
    ]
    if not (
        isinstance(report.split, str)
        and all(is_whole(count, 0) for count in counts)
        and all(isinstance(line, str) or is_whole(line, 0) for line in bad_lines)
    ):
        raise ValueError("a report of lines is none")
    return report
