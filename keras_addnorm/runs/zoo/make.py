"""Makes a model of the zoo: trains or distils it, evaluates it, and lays it down with its card."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from keras_addnorm.basics import atomic_file, atomic_folder
from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.integrity import sha256
from keras_addnorm.basics.locks import alone
from keras_addnorm.runs.directory import RunDirectory, write_text
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.terminal import show
from keras_addnorm.runs.toml_files import to_toml
from keras_addnorm.runs.zoo import card
from keras_addnorm.runs.zoo.archive import write_archive
from keras_addnorm.runs.zoo.registry import ZooModel, find

_MAKING = "making"
# A student's run reads the text that was made of these.
_OF_THE_DATA = ("data", "data_format", "split", "validation")


def commands(model: ZooModel) -> list[list[str]]:
    """Returns the commands that make a model, run in the folder of the zoo.

    Args:
        model: The model.

    Returns:
        The words of each, behind `keras-addnorm`.

    Example:
        >>> from keras_addnorm.runs.zoo import find
        >>> commands(find("demo-en-de-student"))[0][-2:]
        ['--teacher', 'demo-en-de']
    """
    run = f"{_MAKING}/{model.name}"
    settings = ["--config", f"{run}.toml"]
    made = (
        ["distill", run, *settings, "--teacher", model.teacher]
        if model.teacher
        else ["train", run, *settings]
    )
    return [made, ["evaluate", run, "--split", card.SPLIT]]


def make(
    model: ZooModel, folder: str | Path, *, say: Callable[[str], None] = show
) -> tuple[Path, Path]:
    """Makes a model, and the one that it is distilled from, if that is not there.

    The commands run in processes of their own, and what they have done stays in `making/` until the
    model is laid down: the same call goes on where it was stopped or killed.

    Args:
        model: The model.
        folder: The folder of the zoo, where it gets a folder of its name: a run directory without
            what only a training needs, with its card, `README.md`.
        say: Takes lines for the user.

    Returns:
        The folder of the model, and the archive of it, which is to be published.

    Raises:
        UserError: If the folder is there already, another process makes the model there, or a
            command has failed.
    """
    work = to_path(folder) / _MAKING / model.name
    busy = f"Another process is making {model.name!r} in {str(folder)!r}. Wait for it, or stop it."
    with as_user_errors():
        work.parent.mkdir(parents=True, exist_ok=True)
    try:
        with alone(work, busy):
            return _make(model, work, say)
    except BlockingIOError as error:
        raise UserError(busy) from error
    finally:
        with contextlib.suppress(OSError):  # Another model may be in it.
            work.parent.rmdir()


def _make(model: ZooModel, work: Path, say: Callable[[str], None]) -> tuple[Path, Path]:
    folder = work.parents[1]
    final, archive = folder / model.name, folder / f"{model.name}.zip"
    # With what it was made of still there, the last call was killed before it had the archive.
    if os.path.lexists(final) and not _is_laid_down(final, work, archive):
        raise UserError(f"{str(final)!r} exists already. Remove it to make the model anew.")
    if model.teacher and not (folder / model.teacher).exists():
        make(find(model.teacher), folder, say=say)
    settings = work.with_name(f"{model.name}.toml")
    if not final.exists():
        write_text(settings, to_toml(model.settings))
        for command in commands(model):
            say(f"\n{_written(command)}")
            _run(command, folder)
        with as_user_errors(), atomic_folder(final) as made:
            _lay_down(model, RunDirectory(work), RunDirectory(made))
    with atomic_file(archive) as temporary:
        write_archive(final, temporary)
    shutil.rmtree(work)
    settings.unlink(missing_ok=True)
    return final, archive


def _is_laid_down(final: Path, work: Path, archive: Path) -> bool:
    """Whether a model was made in that folder, and did not come from elsewhere meanwhile."""
    made = {sha256(path) for path in RunDirectory(work).weight_files()}
    if not made:  # The folder is half removed, which is done when all is packed.
        return work.exists() and archive.exists()
    laid_down = {sha256(path) for path in RunDirectory(final).weight_files()}
    return bool(laid_down) and laid_down <= made


def _written(command: Sequence[str]) -> str:
    return f"keras-addnorm {shlex.join(command)}"


def _run(command: Sequence[str], folder: Path) -> None:
    """Runs a command of this package in a new process."""
    # -P: the folder's own files, with modules named like common ones, stay off the path.
    words = [sys.executable, "-P", "-m", "keras_addnorm.cli", *command]
    status = subprocess.run(words, cwd=folder, check=False).returncode
    if status:
        raise UserError(
            f"The command {_written(command)!r} ended with the status {status}; what it said "
            "stands above. What it has done so far is kept, and `zoo make` goes on from there."
        )


def _lay_down(model: ZooModel, run: RunDirectory, made: RunDirectory) -> None:
    """Copies what using a run needs, with the data of the registry, and writes the card."""
    config, wanted = run.read_config(), model.config
    made.write_config(config.replace({name: getattr(wanted, name) for name in _OF_THE_DATA}))
    weights = run.weights()
    for path in (run.model, weights, run.scores, run.log):
        run.check(path)
        shutil.copyfile(path, made.path / path.name)
    run.check(run.tokenizer)
    shutil.copytree(run.tokenizer, made.tokenizer)
    written = card.text(
        model,
        made.read_scores()[card.SPLIT],
        sha256(weights) or "",
        [_written(command) for command in commands(model)],
        run.card.read_text(encoding="utf-8") if model.teacher else "",
    )
    write_text(made.card, written)
    made.manifest.write(unlisted=(made.manifest.path.name,))
