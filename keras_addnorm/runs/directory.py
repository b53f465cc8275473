"""The run directory: names, reads and writes the files of a run."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import has_file, is_number, is_whole, to_file, to_path
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.integrity import Manifest
from keras_addnorm.basics.locks import alone
from keras_addnorm.basics.text import parse_json
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.settings import RunConfig, missing_settings
from keras_addnorm.runs.toml_files import naming_file, read_toml

# The temporary names of `atomic_file` and `save_weights`, for the files that a training writes.
_LEFTOVER = re.compile(
    r"\.\d+\.(.+\.weights\.h5|config\.toml|model\.json|log\.csv|residuals(_streams)?\.csv"
    r"|curves\.png|nonfinite-.+\.npz|(tokenizer|source|target)\.model|text_format\.json"
    r"|alignments\.txt)"
)

# Of a log: an epoch has some dozens of numbers.
_MOST_COLUMNS = 1000

# What a training writes before `config.toml`, and leaves where it is killed.
_FIRST_FILES = {
    *("manifest.json", "standard_input", "tokenizer", "token_ids", "tensorboard", "distillation")
}

# What to do about a damaged file, where another copy is not the only help.
_REMEDIES = {
    "config.toml": "Copy it again from where it is whole, if you have not edited it yourself.",
    "averaged.weights.h5": "Copy it again from where it is whole, or remove it and train with "
    "--resume, which takes the mean of the last epochs again.",
    "best.weights.h5": "Copy it again from where it is whole, or take the weights of another "
    "epoch: those in checkpoints/ and best/ are of the same model.",
    "alignments.txt": "Remove it, to have the training pairs aligned again.",
    "lexicon.npz": "Remove it, to have it estimated again.",
    "scores.json": "Remove it, and evaluate again.",
}


def _is_of_a_split(found: Any) -> bool:
    """Whether something is what `evaluate` writes of a split, as far as it is read again."""
    cased = found.get("cased") if isinstance(found, dict) else None
    return isinstance(cased, dict) and all(
        is_number(score) for name, score in cased.items() if name in ("bleu", "chrf")
    )


def _number(text: str) -> float:
    """Returns an int where the text is one, so that a rewritten log stays as it was."""
    # One that no counter reaches would be too large for what is computed with it.
    return int(text) if text.isdecimal() and len(text) < 19 else float(text)


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with text_file(path) as file:
        file.write(text)


@contextlib.contextmanager
def text_file(path: str | Path) -> Iterator[TextIO]:
    """Opens a text file to write, which appears at the end of the block, whole or not at all."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


class _Place:
    """A file or a folder of a run, as an attribute of its `RunDirectory`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: RunDirectory, owner: type) -> Path:
        return run.path / self.name


class RunDirectory:
    """Names the files of a run.

    | file | content |
    |---|---|
    | `config.toml` | the whole configuration, defaults included |
    | `model.json` | the model's `Seq2SeqConfig` |
    | `tokenizer/` | the tokeniser pair |
    | `token_ids/` | the training pairs, tokenised, and their check; made anew if it is gone |
    | `best.weights.h5` | the weights of the best epoch, by `best_metric` |
    | `best/` | the weights of the `keep_best` best epochs, if there are to be several |
    | `averaged.weights.h5` | the mean of the last epochs' weights, if asked for |
    | `checkpoints/` | weights, optimiser, place in the data: what a second command resumes from |
    | `log.csv`, `tensorboard/`, `curves.png` | the course of the training |
    | `residuals.csv` | what `monitor_every` logged of the residual stream |
    | `residuals_streams.csv` | the same of several streams or a memory, if the scheme has them |
    | `alignments.txt` | links between the pieces of the training pairs, for `guided_alignment` |
    | `lexicon.npz` | translations of single tokens, for `evaluation.shortlist` |
    | `scores.json`, `translations.txt` | what `evaluate` found |
    | `evaluation/` | translations of `evaluate`, until all are there |
    | `standard_input` | the sentence pairs, if they came from there |
    | `distillation/` | of a student: what its teacher said, and the text that came of it |
    | `eight_bits/` | of a student: a run of its own, fine-tuned with weights of eight bits |
    | `README.md` | of a student: its card, teacher and student beside each other |
    | `manifest.json` | the digest of each of these files that another command reads |

    Their paths are attributes, such as `log` and `best_weights`.

    Checkpoints have digests of their own. A file that is read is compared with its digest first;
    one without, of an earlier version say, counts as whole.

    Args:
        path: The directory; it need not exist yet.
        verify: Whether files are compared with their digests.

    Example:
        >>> RunDirectory("runs/mine").log.as_posix()
        'runs/mine/log.csv'
    """

    config = _Place("config.toml")
    model = _Place("model.json")
    tokenizer = _Place("tokenizer")
    token_ids = _Place("token_ids")
    checkpoints = _Place("checkpoints")
    best_weights = _Place("best.weights.h5")
    best_epochs = _Place("best")
    averaged_weights = _Place("averaged.weights.h5")
    alignments = _Place("alignments.txt")
    lexicon = _Place("lexicon.npz")
    standard_input = _Place("standard_input")
    distillation = _Place("distillation")
    card = _Place("README.md")
    log = _Place("log.csv")
    tensorboard = _Place("tensorboard")
    residuals = _Place("residuals.csv")
    curves = _Place("curves.png")
    scores = _Place("scores.json")
    translations = _Place("translations.txt")
    evaluation = _Place("evaluation")

    def __init__(self, path: str | Path, *, verify: bool = True) -> None:
        self.path = to_path(path)
        self.verify = verify

    @property
    def manifest(self) -> Manifest:
        """The digests of the files."""
        return Manifest(self.path)

    def check(self, *paths: Path) -> None:
        """Compares files with their digests, if that is wanted.

        Args:
            *paths: Files, or folders with all that is in them.

        Raises:
            UserError: If one is damaged, or is missing though it has a digest.
        """
        if self.verify:
            with as_user_errors():
                for path in paths:
                    self.manifest.check(path, _REMEDIES.get(path.name, ""))

    @classmethod
    def of(cls, directory: str | Path | RunDirectory) -> RunDirectory:
        """Returns the run directory at a path; one is returned as it is."""
        return directory if isinstance(directory, RunDirectory) else cls(directory)

    def has_tokenizers(self) -> bool:
        """Returns whether the tokeniser's directory holds a joint one, or both of two."""
        there = {path.name for path in self.tokenizer.glob("*.model")}
        return "tokenizer.model" in there or {"source.model", "target.model"} <= there

    def has_checkpoints(self) -> bool:
        """Returns whether a training has written a checkpoint here."""
        return any(self.checkpoints.glob("epoch-*.weights.h5"))

    def weight_files(self) -> list[Path]:
        """Returns all weight files that a training wrote here: checkpoints, best and averaged."""
        folders = (self.path, self.checkpoints, self.best_epochs)
        return [path for folder in folders for path in folder.glob("[!.]*.weights.h5")]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the directory against a second training; the lock ends with its process.

        Yields:
            Nothing.

        Raises:
            UserError: If another process is training here, or nothing can be written here.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(
                f"{str(self.path)!r} is a file. Expected a folder for the run, or the name of one "
                "to make. Choose another run directory."
            )
        with as_user_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY)
        try:
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise UserError(
                    f"The run directory {str(self.path)!r} cannot be written to. Expected one that "
                    "this user may make files in. Change its permissions, or choose another "
                    "run directory."
                )
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"Another process is training in {str(self.path)!r}. Wait for it, stop it, or "
                    "choose another run directory."
                ) from None
            self.require_own_folders()
            yield
        finally:
            os.close(descriptor)

    def require_own_folders(self) -> None:
        """Refuses links in the place of folders, and folders in the place of files.

        What is written and removed behind a link is another's; a file that cannot be written ends
        a training late.

        Raises:
            UserError: If there is one; it is named.
        """
        folders = [folder for place in places() if (folder := getattr(self, place)).is_dir()]
        for folder in folders:
            if folder.suffix:
                raise UserError(
                    f"{str(folder)!r} is a folder. Expected the file of that name, which this run "
                    "writes, or nothing. Give the folder another name."
                )
        inside = (
            Path(above, name)
            for folder in folders
            for above, below, _ in os.walk(folder)
            for name in below
        )
        for folder in itertools.chain(folders, inside):
            if folder.is_symlink():
                raise UserError(
                    f"{str(folder)!r} is a link, and what this run writes and removes would be "
                    "in another folder. Expected a folder. Put the folder itself there; the whole "
                    "run directory may be elsewhere, behind a link."
                )

    def remove_leftovers(self) -> None:
        """Removes half-written files of a killed training; call it with the lock held.

        Files of other commands stay: these may be writing now.
        """
        for folder in (self.path, self.checkpoints, self.best_epochs, self.tokenizer):
            for path in folder.glob(".*"):
                if _LEFTOVER.fullmatch(path.name):
                    is_folder = path.is_dir() and not path.is_symlink()
                    shutil.rmtree(path) if is_folder else path.unlink()

    def weights(self) -> Path:
        """Finds the weights to translate with: the averaged ones if there are, else the best.

        Returns:
            The file.

        Raises:
            UserError: If nothing has been trained here yet.
        """
        for path in (self.averaged_weights, self.best_weights):
            # Of a link that leads nowhere, loading it says so: no others are taken in silence.
            if os.path.lexists(path):
                return path
        raise UserError(
            f"There are no trained weights in {str(self.path)!r}. Expected "
            f"{self.best_weights.name!r}. Run `keras-addnorm train {self.path}` first."
        )

    def can_hold_a_run(self) -> bool:
        """Returns whether there is a run, or parts of one, or nothing."""
        if self.path.is_dir():
            begun = all(path.name in _FIRST_FILES for path in self.path.glob("[!.]*"))
            return begun or self.config.exists() or self.holds_parts()
        return not self.path.exists()

    def holds_parts(self) -> bool:
        """Returns whether there is a model that a training, or an import, has made."""
        return self.model.exists() or bool(self.weight_files())

    def read_config(self) -> RunConfig:
        """Reads the configuration of this run.

        Returns:
            The configuration.

        Raises:
            UserError: If this is not a run directory, or the file is damaged or not whole.
        """
        if not self.config.exists():
            self.require_config_of_parts()
            if not self.path.exists():
                raise UserError(
                    f"{str(self.path)!r} is not a run directory: there is nothing of that name. "
                    "Expected a folder that `keras-addnorm train` has made of sentence pairs, or "
                    "`keras-addnorm import` of a pretrained model."
                )
            raise UserError(
                f"{str(self.path)!r} is not a run directory: it has no {self.config.name!r}. "
                "Expected the folder of an earlier `keras-addnorm train` or `import`."
            )
        self.check(self.config)
        settings = read_toml(self.config)
        if missing := missing_settings(settings):
            raise UserError(
                f"{str(self.config)!r} is not whole: it has no "
                f"{', '.join(missing[:4])}{' and others' * (len(missing) > 4)}. Expected every "
                "setting, as a training writes them down: none is taken for its default here. Copy "
                "the file again from where it is whole. Settings of your own for a new run are a "
                "file for --config."
            )
        # Runs that were begun before there was this setting brought every text into this form.
        settings["tokenizer"].setdefault("normalization", "nfkc")
        # Runs of 0.1.0 that named no scheme have that of the presets then.
        settings["model"].setdefault("scheme", "post_ln")
        with naming_file(self.config):
            return RunConfig.from_dict(settings)

    def require_config_of_parts(self) -> None:
        """Checks that the configuration of a run is there.

        Raises:
            UserError: If it is lost: there are other parts of a run without it.
        """
        if not self.config.exists() and self.holds_parts():
            raise UserError(
                f"{str(self.path)!r} holds parts of a run, and its {self.config.name!r} is "
                "missing. Expected it beside them: its settings are those of the model there. "
                "Copy it again from where it is whole, or choose another "
                "run directory."
            )

    def write_config(self, config: RunConfig) -> None:
        """Writes the configuration of this run, defaults included."""
        with self.manifest.rewriting(self.config):
            write_text(self.config, config.to_toml())

    def remove_config(self) -> None:
        """Removes the configuration of a run that was refused before it began."""
        self.manifest.forget(self.config)
        self.config.unlink()

    def read_log(self) -> list[dict[str, float]]:
        """Reads the log.

        Returns:
            Its rows; a value that is missing in a row is left out of it.

        Raises:
            UserError: If the log is damaged.
        """
        self.check(self.log)
        with as_user_errors():
            if not has_file(self.log):
                return []
        try:
            with self.log.open(newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                # Each row gets a value for each column.
                if len(reader.fieldnames or ()) > _MOST_COLUMNS:
                    raise ValueError(f"it has more than {_MOST_COLUMNS:,} columns")
                rows = [
                    {k: _number(value) for k, value in row.items() if value not in ("", "NA", None)}
                    for row in reader
                ]
            if all(is_whole(row.get("epoch"), 0) for row in rows):
                return rows
            reason = "a row has no epoch"
        except (ValueError, TypeError, AttributeError, csv.Error) as error:
            reason = str(error)
        raise UserError(
            f"The log {str(self.log)!r} is damaged: {reason}. Expected a number in each column of "
            "an epoch's row, as a training writes them. Copy it again from where it is whole."
        )

    def write_log(self, rows: list[dict[str, float]]) -> None:
        """Writes the log anew, so that a row may bring a column that earlier ones lack.

        Args:
            rows: One dictionary an epoch.
        """
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        with self.manifest.rewriting(self.log):
            write_text(self.log, text.getvalue())

    def read_scores(self) -> dict[str, Any]:
        """Reads the scores.

        Returns:
            Those written so far, by name of the split.

        Raises:
            UserError: If the file is damaged.
        """
        if not self.scores.exists():
            return {}
        self.check(self.scores)
        try:
            scores = parse_json(to_file(self.scores).read_bytes())
            # Halves of surrogate pairs could not be written with the scores that are added.
            json.dumps(scores, ensure_ascii=False).encode()
            if isinstance(scores, dict) and all(map(_is_of_a_split, scores.values())):
                return scores
            reason = "it has no splits, or something else than their scores"
        except ValueError as error:
            reason = str(error)
        raise UserError(
            f"The scores {str(self.scores)!r} are damaged: {reason}. Expected JSON, as `evaluate` "
            "writes it. Remove the file, and evaluate again."
        )

    def add_scores(self, split: str, scores: Mapping[str, Any]) -> None:
        """Adds the scores of a split to those of the others; several processes may do so at once.

        Args:
            split: The split.
            scores: Its scores.
        """
        with alone(self.scores):
            self.write_scores({**self.read_scores(), split: scores})

    def write_scores(self, scores: Mapping[str, Any]) -> None:
        """Writes the scores, by name of the split."""
        with self.manifest.rewriting(self.scores):
            write_text(self.scores, json.dumps(scores, indent=2, ensure_ascii=False) + "\n")


def places() -> dict[str, str]:
    """The name of each file and folder of a run, by that of the attribute."""
    places = vars(RunDirectory).items()
    return {name: place.name for name, place in places if isinstance(place, _Place)}
