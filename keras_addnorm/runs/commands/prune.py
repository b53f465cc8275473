"""`keras-addnorm prune`: leaves sublayers out of a trained model, and says what it costs."""

from __future__ import annotations

import argparse

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs.commands.command import Command
from keras_addnorm.runs.commands.run_options import (
    add_pairs,
    add_run_dir,
    add_verification,
    load,
    run_directory,
)
from keras_addnorm.runs.outputs import require_new_folder
from keras_addnorm.runs.setting_flags import some_path
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import StatusLine, show

_DESCRIPTION = """\
Leaves sublayers out of a trained model and prints what each of them costs by itself, and what all
of them cost together: loss and perplexity of sentence pairs of a split, and BLEU (greedy search).
Without names, those sublayers are left out that `keras-addnorm inspect` calls nearly the identity.

--save writes the pruned model as a run directory, for evaluate, translate, export, and for a
training that makes up for it: train --start-from. See docs/monitor_prune_fold.md.

examples:
  keras-addnorm prune runs/mine
  keras-addnorm prune runs/mine encoder/2/self_attention decoder/3/feed_forward
  keras-addnorm prune runs/mine encoder/2/self_attention --save runs/pruned
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_dir(parser)
    add_verification(parser)
    parser.add_argument(
        "sublayers", nargs="*", metavar="SUBLAYER", help="such as encoder/2/self_attention"
    )
    add_pairs(parser, "--pairs", 128)
    parser.add_argument(
        "--save", type=some_path, metavar="DIR", help="write the pruned model as a run directory"
    )


def _check(options: argparse.Namespace) -> RunConfig:
    config = run_directory(options).read_config()
    if options.pairs < 1:
        raise UserError(f"There is nothing to measure with --pairs {options.pairs}. Expected 1 up.")
    if options.save is not None:
        require_new_folder(options.save)
    return config


def _run(options: argparse.Namespace, config: RunConfig) -> None:
    from keras_addnorm.runs.prune import prune, save

    run = load(options, config)
    with StatusLine.saying("Measuring the model, with and without each sublayer ..."):
        result = prune(run, options.sublayers, split=options.split, pairs=options.pairs)
    show(result)
    if options.save is not None:
        show(f"Written: {save(result.model, run, options.save)}")


PRUNE = Command(
    "leave sublayers out, and see what it costs",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    usage="RUN_DIR [SUBLAYER ...] [options]",
)
