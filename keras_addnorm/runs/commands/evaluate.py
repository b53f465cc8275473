"""`keras-addnorm evaluate`: scores the translations of a split."""

from __future__ import annotations

import argparse
import functools
import sys

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
from keras_addnorm.runs.setting_flags import some_text
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import show

_DESCRIPTION = """\
Translates a split of the run's data and prints BLEU and chrF with their sacreBLEU signatures. The
scores are added to RUN_DIR/scores.json, the translations written to RUN_DIR/translations.txt. The
same command goes on where it was stopped or killed. --processes and --shard divide the work.

examples:
  keras-addnorm evaluate runs/mine
  keras-addnorm evaluate runs/mine --split test_2016_flickr --num-beams 5
  keras-addnorm evaluate runs/mine --processes 4
  keras-addnorm evaluate runs/mine --split dev.tsv --reference second.txt
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
    add_division(parser)
    add_search_settings(parser)


def _run(options: argparse.Namespace, config: RunConfig) -> None:
    from keras_addnorm.runs.evaluate import evaluate_in_portions, summary, table

    found = evaluate_in_portions(
        run_directory(options),
        config,
        options.split,
        references=options.reference,
        processes=options.processes,
        shard=options.shard,
        say=functools.partial(show, stream=sys.stderr),
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
    config_of_run,
    usage="RUN_DIR [options]",
    resumes=always,
)
