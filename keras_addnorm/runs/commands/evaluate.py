"""`keras-addnorm evaluate`: scores the translations of a split."""

from __future__ import annotations

import argparse

from keras_addnorm.runs.commands.command import Command
from keras_addnorm.runs.commands.run_options import (
    add_run_dir,
    add_search_settings,
    add_verification,
    config_of_run,
    load,
    verbosity,
)
from keras_addnorm.runs.setting_flags import some_text
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import show

_DESCRIPTION = """\
Translates a split of the run's data and prints BLEU and chrF with their sacreBLEU signatures. The
scores are added to RUN_DIR/scores.json, the translations written to RUN_DIR/translations.txt.

examples:
  keras-addnorm evaluate runs/mine
  keras-addnorm evaluate runs/mine --split test_2016_flickr --num-beams 5
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
    add_search_settings(parser)


def _run(options: argparse.Namespace, config: RunConfig) -> None:
    run = load(options, config)

    from keras_addnorm.runs.evaluate import evaluate, summary, table

    found = evaluate(
        run, options.split, references=options.reference, verbose=int(verbosity() == 1)
    )
    show(f"{table(found, config.evaluation.samples)}\n")
    show(summary(found))


EVALUATE = Command(
    "score translations",
    _DESCRIPTION,
    _add_arguments,
    _run,
    config_of_run,
    usage="RUN_DIR [options]",
)
