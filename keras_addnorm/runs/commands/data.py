"""`keras-addnorm data`: looks through sentence pairs, and cleans them."""

from __future__ import annotations

import argparse

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.fields import list_settings
from keras_addnorm.runs.commands.command import Command, nothing_to_prepare
from keras_addnorm.runs.outputs import require_new_folder
from keras_addnorm.runs.setting_flags import add_flags, given, some_path, some_text, whole_number
from keras_addnorm.runs.settings import FILE_SETTINGS, RunConfig
from keras_addnorm.runs.terminal import show

_DESCRIPTION = """\
Looks through sentence pairs before a training: counts, lengths, scripts, and what looks wrong, each
with the first place where it stands. Training pairs that are in a validation or test set, exactly
or but for a word, are counted as well. --out writes a clean copy that train takes as --data:
training pairs with a fault are left out, validation and test sets are written whole.

INPUT is a file of pairs (spa.txt, .tsv, .csv, .jsonl, .parquet, .tmx, .xlf, .po; .gz and the like),
a folder or a zip archive of parallel text, the name of a data set, or - for the standard input. See
docs/data.md.

--example makes a folder of parallel text to try the commands with, out of the built-in set.

examples:
  keras-addnorm data --example corpus
  keras-addnorm data spa.txt --source en --target es
  keras-addnorm data corpus --source en --target de --out clean
  keras-addnorm data opus.zip more.tmx --source en --target de --test newstest2014.tsv --out clean
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs", type=some_text, nargs="*", metavar="INPUT", help="file, folder, archive or name"
    )
    parser.add_argument(
        "--example", type=some_path, metavar="DIR", help="make a folder of parallel text to try"
    )
    parser.add_argument(
        "--test",
        type=some_text,
        nargs="+",
        default=[],
        metavar="INPUT",
        help="test sets beside those of INPUT",
    )
    parser.add_argument("--source", metavar="LANGUAGE", help="by default what INPUT says")
    parser.add_argument("--target", metavar="LANGUAGE", help="by default what INPUT says")
    parser.add_argument("--out", type=some_path, metavar="DIR", help="write a clean copy")
    parser.add_argument(
        "--keep",
        nargs="+",
        default=[],
        metavar="FAULT",
        help="leave pairs with these faults in the clean copy; their names are those of the report",
    )
    parser.add_argument(
        "--max-chars",
        type=whole_number,
        default=1000,
        metavar="N",
        help="leave out pairs with a longer side (default: %(default)s)",
    )
    of_files = [one for one in list_settings(RunConfig) if one.key in FILE_SETTINGS]
    add_flags(parser, of_files, titles={"": "files"})


def _check(options: argparse.Namespace) -> RunConfig:
    """The settings of files."""
    from keras_addnorm.runs.corpus_report import require_faults

    if bool(options.inputs) == bool(options.example):
        options.parser.error("expected an INPUT to look through, or --example DIR to make one")
    require_faults(options.keep)
    if options.max_chars < 1:
        raise ArgumentError(
            "--max-chars is a number of characters, 1 or more.", value=options.max_chars
        )
    if options.out:
        require_new_folder(options.out)
    return RunConfig.from_dict(given(options))


def _run(options: argparse.Namespace, config: RunConfig) -> None:
    if options.example:
        from keras_addnorm.runs.example_data import next_steps, write_example

        source, target = options.source or "en", options.target or "de"
        folder = write_example(options.example, source, target)
        show(next_steps(folder, source, target))
        return

    from keras_addnorm.runs.corpus_report import CorpusSplits, examine, write_clean
    from keras_addnorm.runs.text_data import reader_choice
    from keras_addnorm.runs.worker_processes import usable_cores

    corpus = CorpusSplits.opened(
        options.inputs,
        options.test,
        source=options.source,
        target=options.target,
        max_chars=options.max_chars,
        reader=reader_choice(config),
    )
    cores = len(usable_cores())
    report = examine(corpus, cores)
    show(report)
    if options.out:
        show(write_clean(corpus, report, options.out, options.keep, cores))


DATA = Command(
    "look through sentence pairs, and clean them",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    nothing_to_prepare,  # Files of pairs are read without Keras and TensorFlow.
    usage="(INPUT ... | --example DIR) [options]",
)
