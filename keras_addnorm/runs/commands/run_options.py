"""Options that several commands have: the run directory, and settings of its configuration."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics.fields import Setting, list_settings
from keras_addnorm.runs.command_parser import RunOption
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.portions import WHOLE, Share
from keras_addnorm.runs.setting_flags import add_flags, given, some_path, some_text, whole_number
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import StatusLine

if TYPE_CHECKING:
    from keras_addnorm.runs.trained_run import TrainedRun

_FIRST = RunOption()


def add_run_dir(parser: Any, run: RunOption = _FIRST) -> None:
    """Adds the run directory, which has to be given, as a word or as `--run-dir`."""
    parser.add_argument(
        "--run-dir", type=some_path, metavar="DIR", help="the run directory, in place of RUN_DIR"
    )
    parser.set_defaults(run_option=run)


def add_verification(parser: argparse.ArgumentParser) -> None:
    """Adds `--no-verify`, for commands that read a run or an export."""
    parser.add_argument(
        "--no-verify",
        dest="verify",
        action="store_false",
        help="take files as they are, without comparing them with their digests",
    )


def add_pairs(parser: argparse.ArgumentParser, flag: str, default: int) -> None:
    """Adds `--split`, and a flag for how many of its pairs are looked at."""
    parser.add_argument(
        "--split",
        type=some_text,
        default="validation",
        help="split of the pairs (default: %(default)s)",
    )
    parser.add_argument(
        flag,
        type=whole_number,
        default=default,
        metavar="N",
        help="number of sentence pairs (default: %(default)s)",
    )


def add_division(parser: argparse.ArgumentParser) -> None:
    """Adds `--processes` and `--shard`, for commands that translate in portions."""
    group = parser.add_argument_group("many texts")
    group.add_argument(
        "--processes",
        type=_processes,
        default=1,
        metavar="N",
        help="number of processes that translate, each on its share of the cores (default: 1)",
    )
    group.add_argument(
        "--shard",
        type=_shard,
        default=WHOLE,
        metavar="I/N",
        help="translate the I-th of N shares of the texts: the same command for each, at the same "
        "time or not, on machines that share the disk; the last one writes the output",
    )


def _processes(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more processes, received {text!r}")
    return count


_processes.__name__ = "whole number"


def _shard(text: str) -> Share:
    """Reads `2/5`; shares are counted from 1 here, and from 0 in Python."""
    try:
        number, count = map(int, text.split("/"))
        return Share(number - 1, count)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected I/N with I from 1 to N, such as 2/5, received {text!r}"
        ) from None


def shard_is_done(options: argparse.Namespace) -> str:
    """Says that a shard has done its part, and others have not."""
    return f"Shard {options.shard.number + 1} of {options.shard.count} is translated, not all are"


def run_directory(options: argparse.Namespace) -> RunDirectory:
    """Returns the run that was named, whose files are compared with their digests or not."""
    return RunDirectory(options.run_dir, verify=options.verify)


def add_settings(
    parser: argparse.ArgumentParser, settings: Iterable[Setting], own_table: str, example: str
) -> None:
    """Adds a flag for each setting, those of `own_table` first, and `--set` with an example."""
    add_flags(parser, settings, own_table)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"a setting by its name in the TOML file, such as {example}",
    )


def add_search_settings(
    parser: argparse.ArgumentParser, names: Sequence[str] | None = None
) -> None:
    """Adds settings of `[evaluation]`: all, or those that mean something to the command."""
    settings = (one for one in list_settings(RunConfig) if one.table == "evaluation")
    chosen = [one for one in settings if names is None or one.name in names]
    add_settings(parser, chosen, "evaluation", "evaluation.num_beams=2")


def config_of_run(options: argparse.Namespace) -> RunConfig:
    """The configuration of a run; search settings that were given replace its own."""
    return run_directory(options).read_config().replace(given(options))


def load(options: argparse.Namespace, config: RunConfig) -> TrainedRun:
    """Loads a run, and gives it the configuration of `config_of_run`."""
    with StatusLine.saying(f"Loading {options.run_dir} ..."):
        from keras_addnorm.runs.trained_run import load_run

        return dataclasses.replace(load_run(run_directory(options)), config=config)


def verbosity() -> int:
    """Keras' progress bars on a terminal; a line now and then in a file."""
    return 1 if sys.stdout.isatty() else 2
