"""`keras-addnorm inspect`: reports what Add & Norm does in a trained model."""

from __future__ import annotations

import argparse

from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.optional import require_installed
from keras_addnorm.runs.commands.command import Command
from keras_addnorm.runs.commands.run_options import (
    add_pairs,
    add_run_dir,
    add_verification,
    load,
    run_directory,
)
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.outputs import require_writable
from keras_addnorm.runs.setting_flags import some_path
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import StatusLine, show

_DESCRIPTION = """\
Inspects a trained model with one forward and backward pass over some sentence pairs of its own
data. Prints the findings, each with its threshold, and a table of every sublayer:

  rms x, F(x), y   root mean square of the residual stream before the sublayer, of the sublayer's
                   output, and of the stream after its Add & Norm
  F/x              ratio of the sublayer's output to the stream
  cos              cosine between x and y: 1 where the sublayer changes nothing
  effect           relative change of y against a sublayer that gives zeros, whatever the scheme
  dL/dx, dL/dw     the loss's gradient at the stream and at the sublayer's weights
  skip             how much larger the loss is without the sublayer

--html writes a page with charts, and attention maps of a sentence. The page needs no network, and
to write it takes the extra report: pip install -c constraints.txt ".[report]". See
docs/diagnostics.md.

examples:
  keras-addnorm inspect runs/mine
  keras-addnorm inspect runs/mine --html report.html --sentence "A dog runs through the snow."
  keras-addnorm inspect runs/mine --split test --batch-size 64 --json report.json
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_dir(parser)
    add_verification(parser)
    parser.add_argument("--html", type=some_path, metavar="FILE", help="write a page with charts")
    parser.add_argument("--json", type=some_path, metavar="FILE", help="write all numbers")
    parser.add_argument(
        "--sentence", metavar="TEXT", help="draw its attention maps (default: the first pair)"
    )
    add_pairs(parser, "--batch-size", 32)


def _check(options: argparse.Namespace) -> RunConfig:
    config = run_directory(options).read_config()
    if options.html is not None:
        with as_user_errors():
            require_installed("report", "The page", "plotly")
    for path in (options.html, options.json):
        if path is not None:
            require_writable(path)
    if options.html is not None and options.html == options.json:
        raise UserError(
            f"--html and --json are both {str(options.html)!r}: one would replace the other. "
            "Expected two names."
        )
    return config


def _run(options: argparse.Namespace, config: RunConfig) -> None:
    from keras_addnorm.runs.inspect import inspect, write

    run = load(options, config)
    with StatusLine.saying(f"Inspecting {options.run_dir} ..."):
        report = inspect(
            run, options.split, batch_size=options.batch_size, sentence=options.sentence
        )
    show(report)
    for path in write(report, run, html=options.html, json_file=options.json):
        show(f"Written: {path}")


INSPECT = Command(
    "inspect what Add & Norm does",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    usage="RUN_DIR [options]",
)
