"""`keras-addnorm export`: writes a SavedModel, or a model for another runtime."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs.choices import STORAGES
from keras_addnorm.runs.commands.command import Command
from keras_addnorm.runs.commands.run_options import (
    add_run_dir,
    add_search_settings,
    add_verification,
    config_of_run,
    load,
)
from keras_addnorm.runs.export import FORMATS, Format
from keras_addnorm.runs.outputs import require_new_folder, require_outside_models
from keras_addnorm.runs.setting_flags import given, some_path, whole_number
from keras_addnorm.runs.settings import SEARCH_SETTINGS, EvaluationConfig, RunConfig
from keras_addnorm.runs.terminal import StatusLine, show

_DESCRIPTION = """\
Writes a SavedModel that takes strings and returns strings: DIRECTORY/<version>/, ready for
TensorFlow Serving, and for every program that has TensorFlow. See saved_models/README.md.

The other formats write DIRECTORY for a runtime without TensorFlow; its README.md has the code that
translates with it, and docs/runtimes.md says what each can do:

  ctranslate2   a C++ runtime with its own search: the fastest on a CPU in int8
  onnx          graphs of the encoder and of a step of the decoder, for ONNX Runtime and others
  litert        the same in one file for LiteRT, on phones and small devices
  bergamot      eight bits for the engine of Firefox, which runs in a web page, too: with --engine,
                DIRECTORY is a page that translates in the browser, offline

examples:
  keras-addnorm export runs/mine saved_models/mine
  keras-addnorm export runs/mine saved_models/mine --version 7 --num-beams 1
  keras-addnorm export runs/mine saved_models/mine --storage float16
  keras-addnorm export runs/mine saved_models/mine --shortlist 1024
  keras-addnorm export runs/mine ct2/mine --format ctranslate2
  keras-addnorm export runs/mine onnx/mine --format onnx --max-length 64
  keras-addnorm export runs/mine bergamot/mine --format bergamot --shortlist 1024
  keras-addnorm export runs/mine page --format bergamot \\
      --engine node_modules/@browsermt/bergamot-translator
"""

# Arguments of the functions that write; `FORMATS` says which has which.
_OWN = ("version", "licence", "storage", "engine")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_dir(parser)
    add_verification(parser)
    parser.add_argument(
        "directory", type=some_path, metavar="DIRECTORY", help="folder of the versions"
    )
    parser.add_argument(
        "--format",
        choices=tuple(FORMATS),
        default=next(iter(FORMATS)),
        help="default: %(default)s",
    )
    group = parser.add_argument_group("of a SavedModel")
    group.add_argument(
        "--version", type=whole_number, metavar="N", help="its number (default: the next one)"
    )
    group.add_argument(
        "--licence", metavar="TEXT", help="licence of the model, for its card (default: the run's)"
    )
    group.add_argument(
        "--storage",
        choices=STORAGES,
        help="how weights are stored; it computes as before (default: float32)",
    )
    group = parser.add_argument_group("of an export for Bergamot's engine")
    group.add_argument(
        "--engine",
        type=some_path,
        metavar="FOLDER",
        help="the npm package @browsermt/bergamot-translator, for a page that translates",
    )
    add_search_settings(parser, SEARCH_SETTINGS)


def _check(options: argparse.Namespace) -> RunConfig:
    """The configuration of the run, if the format can have what was given."""
    config = config_of_run(options)
    chosen = FORMATS[options.format]
    flags = {one.key: f"--{flag}" for flag, one in options.flags.items()}
    flags |= {name: f"--{name}" for name in _OWN}
    taken = [key for key in flags if key in (*chosen.arguments, *map(_key, chosen.search))]
    if refused := [key for key in (*_own_arguments(options), *given(options)) if key not in taken]:
        raise UserError(
            f"An export with --format {options.format} has no "
            f"{', '.join(flags[key] for key in refused)} inside. Expected "
            f"{' or '.join(flags[key] for key in taken) or 'neither a version nor a setting'}. "
            "Give the search to the runtime when you translate."
        )
    if "version" in chosen.arguments:  # A folder of versions, which may exist.
        require_outside_models(options.directory / "1")
    else:
        require_new_folder(options.directory)
    return config


def _key(name: str) -> str:
    return f"evaluation.{name}"


def _own_arguments(options: argparse.Namespace) -> dict[str, Any]:
    own = {name: getattr(options, name) for name in _OWN}
    return {name: value for name, value in own.items() if value is not None}


def _left_to_the_runtime(config: RunConfig, chosen: Format) -> str | None:
    """Says which settings of the run's search a format has no place for; None if it has for all."""
    search, default = config.evaluation, EvaluationConfig()
    lost = [
        f"{_key(name)} = {getattr(search, name)}"
        for name in SEARCH_SETTINGS
        if name not in chosen.search and getattr(search, name) != getattr(default, name)
    ]
    return ", ".join(lost) or None


def _run(options: argparse.Namespace, config: RunConfig) -> None:
    run = load(options, config)
    chosen = FORMATS[options.format]
    if lost := _left_to_the_runtime(config, chosen):
        show(
            f"Note: with --format {options.format} the search is the runtime's, and the export "
            f"does not hold what this run asks for: {lost}. Ask the runtime for it when you "
            "translate.",
            stream=sys.stderr,
        )
    with StatusLine.saying(f"Exporting to {options.directory} ..."):
        written = chosen.write(run, options.directory, **_own_arguments(options))
    show(written)


EXPORT = Command(
    "write a SavedModel",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    usage="RUN_DIR DIRECTORY [options]",
)
