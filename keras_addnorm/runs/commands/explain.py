"""`keras-addnorm explain`: a page that runs trained models, for those who learn."""

from __future__ import annotations

import argparse

from keras_addnorm.runs.commands.command import Command
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.outputs import require_writable
from keras_addnorm.runs.setting_flags import some_path
from keras_addnorm.runs.terminal import StatusLine, show

_DESCRIPTION = """\
Writes "Add & Norm by hand": one HTML file in which small trained models run. Type a sentence, and
see its pieces, embeddings and positions; x, F(x), x + F(x) and the norms of every sublayer as bars
and numbers; the attention of each head; the next token; the beam. The page needs no network.

Several runs stand side by side: switch the scheme and watch the same sentence. Runs that were
trained with training.monitor_every also show how stream and gradients changed while they learned.
See docs/explain.md.

examples:
  keras-addnorm explain runs/mine --html page.html
  keras-addnorm explain runs/post_ln runs/pre_ln --html page.html --sentence "A dog runs."
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_dirs",
        type=some_path,
        nargs="*",
        metavar="RUN_DIR",
        help="run directories of small models",
    )
    parser.add_argument(
        "--run-dir",
        type=some_path,
        nargs="+",
        action="extend",
        default=[],
        metavar="DIR",
        dest="more_run_dirs",
        help="the same, as other commands have it",
    )
    parser.add_argument(
        "--html", type=some_path, required=True, metavar="FILE", help="the page to write"
    )
    parser.add_argument(
        "--sentence",
        action="append",
        default=[],
        metavar="TEXT",
        help="a text to begin with; may be given several times (default: some validation pairs)",
    )


def _check(options: argparse.Namespace) -> None:
    options.run_dirs += options.more_run_dirs
    if not options.run_dirs:
        options.parser.error("the following arguments are required: RUN_DIR")
    for directory in options.run_dirs:
        RunDirectory(directory).read_config()
    require_writable(options.html)


def _run(options: argparse.Namespace, checked: None) -> None:
    with StatusLine.saying(f"Loading {len(options.run_dirs)} runs ..."):
        from keras_addnorm.runs.explain import explain

        path = explain(options.run_dirs, options.html, sentences=options.sentence)
    show(f"Written: {path}")


EXPLAIN = Command(
    "see a trained model compute, in a page",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    usage="RUN_DIR [RUN_DIR ...] --html FILE [options]",
)
