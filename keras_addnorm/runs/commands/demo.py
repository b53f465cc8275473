"""`keras-addnorm demo`: the whole job on the built-in set."""

from __future__ import annotations

import argparse
from pathlib import Path

from keras_addnorm.basics.errors import UserError, unknown_name
from keras_addnorm.runs.choices import DEMO_PAIRS
from keras_addnorm.runs.commands.command import Command, always
from keras_addnorm.runs.commands.run_options import verbosity
from keras_addnorm.runs.setting_flags import some_path

_DESCRIPTION = """\
Trains a small Pre-LN Transformer on the built-in data set, translates 1,000 held-out sentences,
draws the cross-attention, exports a SavedModel and translates with it in a new process. The set is
generated offline: sixteen kinds of sentences about dates, prices, distances and the like. A model
of it knows no others.

examples:
  keras-addnorm demo
  keras-addnorm demo --pair en-fr
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pair",
        default="en-de",
        metavar="{" + ",".join(DEMO_PAIRS) + "}",
        help="the languages (default: %(default)s)",
    )
    parser.add_argument(
        "--run-dir", type=some_path, metavar="DIR", help="run directory (default: runs/demo-PAIR)"
    )
    parser.add_argument(
        "--export-dir",
        type=some_path,
        metavar="DIR",
        default=Path("saved_models/demo"),
        help="where the SavedModel goes (default: %(default)s)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="try that everything works, with a useless model"
    )


def _check(options: argparse.Namespace) -> None:
    if options.pair not in DEMO_PAIRS:
        raise unknown_name("--pair", options.pair, DEMO_PAIRS)
    # Before the training: the export comes last.
    if options.export_dir.exists() and not options.export_dir.is_dir():
        raise UserError(f"--export-dir {options.export_dir} is a file. Expected a folder.")


def _run(options: argparse.Namespace, _: None) -> None:
    from keras_addnorm.runs.demo import demo

    demo(
        options.pair,
        options.run_dir,
        options.export_dir,
        quick=options.quick,
        verbose=verbosity(),
    )


DEMO = Command(
    "the whole job on a built-in set", _DESCRIPTION, _add_arguments, _run, _check, resumes=always
)
