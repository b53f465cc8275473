"""What a command of `keras-addnorm` is: its texts, its arguments, its check and its work."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keras_addnorm.runs.process_startup import prepare_for_keras


def nothing_to_check(options: argparse.Namespace) -> None:
    """Checks nothing."""


def nothing_to_prepare() -> None:
    """Leaves the process as it is."""


def never(options: argparse.Namespace) -> bool:
    """Says of a command that it begins anew."""
    return False


def always(options: argparse.Namespace) -> bool:
    """Says of a command that it goes on."""
    return True


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        summary: What it does, in a few words.
        description: Its help text, with examples.
        add_arguments: Adds its arguments to its parser.
        run: Does it, with the parsed command line and what `check` returned.
        check: Refuses what can be refused before Keras is imported.
        prepare: Prepares the process after the check.
        usage: Its arguments in a line.
        resumes: Whether the same command goes on where it was stopped, as it was given.
    """

    summary: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Any], None]
    check: Callable[[argparse.Namespace], Any] = nothing_to_check
    prepare: Callable[[], None] = prepare_for_keras
    usage: str = "[options]"
    resumes: Callable[[argparse.Namespace], bool] = never
