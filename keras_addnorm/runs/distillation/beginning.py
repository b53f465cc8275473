"""What a distillation checks before it begins, and the settings that it remembers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.data.readers import InputFile
from keras_addnorm.runs.directory import RunDirectory, write_text
from keras_addnorm.runs.distillation.settings import SETTINGS, DistillationConfig
from keras_addnorm.runs.errors import as_user_errors, is_of_the_machine
from keras_addnorm.runs.evaluate import require_tokenizer
from keras_addnorm.runs.settings import RunConfig, TrainingConfig


def require_place(directory: RunDirectory, settings: DistillationConfig) -> None:
    """Refuses a run directory that holds something else: another model of this command, or a run.

    A `UserError` says what is there.
    """
    others = {"teacher": settings.teacher, "backward": settings.backward}
    for name, other in others.items():
        if other and Path(other).resolve() == directory.path.resolve():
            raise ArgumentError(
                f"{str(directory.path)!r} is `{name}`, and is to hold the student as well.",
                "two directories",
                "Choose another run directory for the student.",
                received="the same twice",
            )
    has_run = directory.config.exists() or directory.holds_parts()
    if has_run and not directory.distillation.is_dir():
        raise UserError(
            f"{str(directory.path)!r} holds a run that no distillation has made. Expected a new "
            "directory, or that of a distillation which goes on. Choose another run directory."
        )


def require_usable_settings(config: RunConfig, settings: DistillationConfig) -> None:
    """Refuses settings that would mean nothing, and files of sentences that cannot be read."""
    for name in ("distillation", "temperature"):
        given, usual = getattr(config.training, name), getattr(TrainingConfig(), name)
        if given != usual and not settings.token_level:
            raise ArgumentError(
                "Of a teacher's sentences alone no distribution over tokens is learned.",
                f"`token_level=True` with `training.{name}`",
                f"Leave it at {usual}, or learn tokens as well.",
                **{f"training.{name}": given},
            )
    require_tokenizer(config)
    for text in settings.monolingual:
        try:
            with as_user_errors():
                InputFile(Path(text)).refuse_wide_encoding()
        except UserError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            raise ArgumentError(
                f"The sentences cannot be read: {error.__cause__.strerror}.",
                "text files in `distillation.monolingual`, a sentence a line",
                value=text,
            ) from error


@contextlib.contextmanager
def remembered(directory: RunDirectory) -> Iterator[Callable[[str], None]]:
    """Remembers the settings of a distillation, for a second command; not those that are refused.

    They are accepted when the student's training has written its own. What is refused before that
    leaves the settings of the last command as they were; a kill or a full disk refuses nothing.

    Args:
        directory: The student's run directory.

    Yields:
        The function that writes them, as TOML.
    """
    path, is_written = directory.distillation / SETTINGS, False
    before, of_training = _content(path), _content(directory.config)

    def write(text: str) -> None:
        nonlocal is_written
        is_written = True
        write_text(path, text)

    try:
        yield write
    except UserError as error:
        is_begun = _content(directory.config) != of_training
        if is_written and not is_begun and not is_of_the_machine(error):
            if before is None:
                path.unlink()
            else:
                with atomic_file(path) as temporary:
                    temporary.write_bytes(before)
        raise


def _content(path: Path) -> bytes | None:
    return to_file(path).read_bytes() if path.exists() else None
