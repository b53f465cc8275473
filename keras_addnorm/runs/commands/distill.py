"""`keras-addnorm distill`: makes a small fast model from a big one."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.runs.command_parser import RunOption
from keras_addnorm.runs.commands.command import Command, always
from keras_addnorm.runs.commands.run_options import (
    add_run_dir,
    add_settings,
    add_verification,
    run_directory,
    verbosity,
)
from keras_addnorm.runs.distillation.settings import (
    SETTINGS,
    TABLE,
    DistillationConfig,
    student_config,
)
from keras_addnorm.runs.process_startup import prepare_for_training
from keras_addnorm.runs.setting_flags import given, some_path
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import show
from keras_addnorm.runs.toml_files import by_dotted_key, naming_file, read_toml

_DESCRIPTION = """\
Trains a small student on what a big teacher says: sequence-level distillation. The teacher is a run
(trained here, or imported), or a folder of translations that were made elsewhere. It translates the
source side of --data; of its hypotheses the one nearest to the reference is taken. A model of the
other direction, --backward, filters. The student is an ordinary run, with the settings of train; it
has neither label smoothing nor dropout, and is guided by word alignments, unless told otherwise. At
the end RUN_DIR/README.md has both beside each other: BLEU, chrF, sentences a second on one core,
size.

Everything is kept in RUN_DIR/distillation as it is made. The same command again, or
keras-addnorm distill RUN_DIR, goes on where it was stopped or killed. See
docs/how_to/distill.md.

examples:
  keras-addnorm distill runs/student --teacher runs/big --data corpus --source en --target de \\
      --preset student-micro
  keras-addnorm distill runs/student --teacher runs/opus --data corpus --source en --target de \\
      --monolingual more.en --backward runs/opus-de-en --processes 4
  keras-addnorm distill runs/student --teacher translated --data corpus --source en --target de
"""


class _Chosen(NamedTuple):
    """What is to be done: the student's configuration, and how its text is made."""

    student: RunConfig
    distillation: DistillationConfig


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_dir(parser, RunOption(may_be_new=True))
    add_verification(parser)
    parser.add_argument("--config", type=some_path, metavar="FILE", help="settings as TOML")
    settings = [*DistillationConfig.settings(), *DistillationConfig.settings_of_students()]
    add_settings(parser, settings, "training", "model.positions=rotary")
    parser.set_defaults(sets_anything=True)


def _check(options: argparse.Namespace) -> _Chosen:
    """The settings: those that it was begun with, then file, then flags."""
    directory = run_directory(options)
    directory.require_config_of_parts()
    begun = directory.distillation / SETTINGS
    settings = by_dotted_key(read_toml(begun)) if begun.exists() else {}
    settings |= by_dotted_key(read_toml(options.config)) if options.config else {}
    settings |= given(options)
    prefix = f"{TABLE}."
    own = {key: value for key, value in settings.items() if key.startswith(prefix)}
    with naming_file(options.config):
        student = student_config({key: settings[key] for key in settings.keys() - own.keys()})
    table = {key.removeprefix(prefix): value for key, value in own.items()}
    student.require_codes()
    if "teacher" not in table:
        reason = "there is no such run"
        if directory.path.exists():
            is_begun = directory.distillation.exists()
            reason = "no settings were accepted yet" if is_begun else "it was not made by one"
        raise ArgumentError(
            f"There is no distillation in {str(directory.path)!r} to go on with: {reason}.",
            "the run directory of one, or `teacher` to begin one",
        )
    with naming_file(options.config):
        return _Chosen(student, DistillationConfig.from_dict(table))


def _run(options: argparse.Namespace, chosen: _Chosen) -> None:
    from keras_addnorm.runs.distillation.card import comparison
    from keras_addnorm.runs.distillation.distill import distill

    directory = run_directory(options)
    found = distill(*chosen, directory, verbose=verbosity())
    show(f"\n{comparison(found)}\nOn {found.split!r}. The card: {directory.card}.")


DISTILL = Command(
    "make a small fast model from a big one",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    prepare_for_training,
    usage="RUN_DIR --teacher DIR [options]",
    resumes=always,
)
