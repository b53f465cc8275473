"""`keras-addnorm evaluate`: scores the translations of a split."""

from __future__ import annotations

import argparse
import functools
import sys

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs.commands.command import Command, always
from keras_addnorm.runs.commands.run_options import (
    add_division,
    add_run_dir,
    add_search_settings,
    add_verification,
    config_of_run,
    run_directory,
    shard_is_done,
)
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.portions import WHOLE
from keras_addnorm.runs.setting_flags import given, some_path, some_text
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import show

_DESCRIPTION = """\
Translates a split of the run's data and prints BLEU and chrF with their sacreBLEU signatures. The
scores are added to RUN_DIR/scores.json, the translations written to RUN_DIR/translations.txt. The
same command goes on where it was stopped or killed. --processes and --shard divide the work.

--compare evaluates other runs, too, and says which differences are more than chance: sacreBLEU's
paired bootstrap and approximate randomisation, each run against RUN_DIR.

examples:
  keras-addnorm evaluate runs/mine
  keras-addnorm evaluate runs/mine --split test_2016_flickr --num-beams 5
  keras-addnorm evaluate runs/mine --processes 4
  keras-addnorm evaluate runs/mine --split dev.tsv --reference second.txt
  keras-addnorm evaluate runs/mine --compare runs/other runs/third
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_dir(parser)
    add_verification(parser)
    parser.add_argument(
        "--split", type=some_text, default="test", help="split to translate (default: test)"
    )
    parser.add_argument(
        "--reference",
        action="append",
        default=[],
        type=some_text,
        metavar="FILE|COLUMN",
        help="further references: a text file, or a column of the split's file (repeatable)",
    )
    parser.add_argument(
        "--compare",
        nargs="+",
        action="extend",
        default=[],
        type=some_path,
        metavar="RUN",
        help="other runs, evaluated alike and tested against RUN_DIR",
    )
    add_division(parser)
    add_search_settings(parser)


def _check(options: argparse.Namespace) -> list[tuple[RunDirectory, RunConfig]]:
    """The runs with their configurations, the one that others are compared with first."""
    runs = [(run_directory(options), config_of_run(options))]
    if options.compare and options.shard != WHOLE:
        raise UserError(
            "--compare and --shard do not go together: a shard has not all translations. "
            "Expected one of the two; --processes divides the work of a comparison."
        )
    for path in options.compare:
        directory = RunDirectory(path, verify=options.verify)
        runs.append((directory, directory.read_config().replace(given(options))))
    return runs


def _run(options: argparse.Namespace, runs: list[tuple[RunDirectory, RunConfig]]) -> None:
    from keras_addnorm.runs.compare import compare_in_portions, comparison_table
    from keras_addnorm.runs.evaluate import evaluate_in_portions, summary, table

    say = functools.partial(show, stream=sys.stderr)
    directory, config = runs[0]
    if options.compare:
        evaluations, comparison = compare_in_portions(
            runs,
            options.split,
            references=options.reference,
            processes=options.processes,
            say=say,
        )
        for (other, _), evaluation in zip(runs, evaluations, strict=True):
            show(f"{other.path}\n{summary(evaluation)}\n")
        show(comparison_table(comparison))
        return
    found = evaluate_in_portions(
        directory,
        config,
        options.split,
        references=options.reference,
        processes=options.processes,
        shard=options.shard,
        say=say,
    )
    if found is None:
        show(f"{shard_is_done(options)}: the last one prints the scores.")
        return
    show(f"{table(found, config.evaluation.samples)}\n")
    show(summary(found))


EVALUATE = Command(
    "score translations",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    usage="RUN_DIR [options]",
    resumes=always,
)
