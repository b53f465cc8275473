"""`keras-addnorm translate`: translates texts or lines, with a run or an exported model."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_addnorm.basics.atomic import is_device
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.basics.printing import printable_lines
from keras_addnorm.basics.text import BYTES_LOOKED_AT, how_to_convert, wide_encoding
from keras_addnorm.basics.translation import Translation
from keras_addnorm.runs.command_parser import RunOption
from keras_addnorm.runs.commands.command import Command
from keras_addnorm.runs.commands.run_options import (
    add_division,
    add_run_dir,
    add_search_settings,
    add_verification,
    config_of_run,
    load,
    run_directory,
    shard_is_done,
)
from keras_addnorm.runs.directory import text_file
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.outputs import require_writable
from keras_addnorm.runs.portions import WHOLE
from keras_addnorm.runs.setting_flags import given, some_path, whole_number
from keras_addnorm.runs.settings import SEARCH_SETTINGS, RunConfig
from keras_addnorm.runs.terminal import StatusLine, bar, show

# Lines of a file translated at once: enough that lines of similar length share batches.
_LINES_AT_ONCE = 1024
_SIDES = ("source", "target")
_LINE_ENDS = re.compile(rb"\r\n|\r|\n")

_DESCRIPTION = """\
Translates the given texts, or each line of the standard input, with a run or an exported model.
A long file is translated and printed in portions of about a thousand lines. On a terminal the
standard error says how far it is.

With --output what is translated is kept in FILE.portions until all is: the same command goes on
where it was stopped or killed. --processes and --shard divide the work.

--n-best prints up to N translations of each text, the best first, each on a line of its own: the
number of the text, the score, and the translation, with tabs between.

examples:
  keras-addnorm translate runs/mine "A dog runs." "Two dogs run."
  keras-addnorm translate --model saved_models/mine --output lines.de < lines.en
  keras-addnorm translate runs/mine --processes 4 --output lines.de < lines.en
  keras-addnorm translate runs/mine --shard 2/5 --output lines.de < lines.en
  keras-addnorm translate runs/mine --num-beams 8 --n-best 3 --no-repeat-ngram 3 "A dog."
  keras-addnorm translate --model saved_models/nllb --source-language eng_Latn \\
      --target-language deu_Latn "A dog runs."
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    origin = parser.add_mutually_exclusive_group()
    add_run_dir(origin, RunOption(or_else="model"))
    origin.add_argument("--model", type=some_path, metavar="DIR", help="an exported model")
    add_verification(parser)
    parser.add_argument("--scores", action="store_true", help="print the score and a tab first")
    parser.add_argument(
        "--n-best",
        type=whole_number,
        metavar="N",
        help="print the N best translations of each text, with a run and N beams or more",
    )
    parser.add_argument(
        "--output",
        type=some_path,
        metavar="FILE",
        help="write to a file, which appears when all is translated; a killed command goes on",
    )
    for side in _SIDES:
        parser.add_argument(
            f"--{side}-language",
            metavar="NAME",
            help=f"the {side} language, where the model is told it: as its vocabulary names it",
        )
    add_division(parser)
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="by default the lines of stdin")
    add_search_settings(parser, (*SEARCH_SETTINGS, "batch_size"))


def _check(options: argparse.Namespace) -> RunConfig | None:
    """The configuration of the run; None for an exported model."""
    if options.output is not None:
        require_writable(options.output)
    elif options.processes > 1 or options.shard != WHOLE:
        raise UserError(
            "--processes and --shard need a file: what several processes translate is put in order "
            "there. Pass --output FILE."
        )
    if options.run_dir is None:
        _require_no_search(options)
        return None
    config = config_of_run(options)
    beams = config.evaluation.num_beams
    if options.n_best is not None and not 1 <= options.n_best <= beams:
        raise ArgumentError(
            f"--n-best takes a number from 1 to the number of beams, {beams}.",
            remedy=f"Pass --num-beams {max(options.n_best, 1)} or more.",
            value=options.n_best,
        )
    return config


def _require_no_search(options: argparse.Namespace) -> None:
    refused = [f"--{flag}" for flag, one in options.flags.items() if one.key in given(options)]
    refused += ["--n-best"] * (options.n_best is not None)
    if refused:
        raise UserError(
            f"An exported model has its search inside: {', '.join(refused)} cannot be chosen "
            "here. Export it again, or translate with its run."
        )


def _run(options: argparse.Namespace, config: RunConfig | None) -> None:
    if _resumes(options):
        _to_file(options, config)
    else:
        _one_portion_after_another(options, config)


def _resumes(options: argparse.Namespace) -> bool:
    """Whether there is a file beside which portions can be kept."""
    return options.output is not None and not is_device(options.output)


def _to_file(options: argparse.Namespace, config: RunConfig | None) -> None:
    """Writes the output when all of it is there; until then its portions are beside it."""
    from keras_addnorm.runs.translation_portions import (
        ExportTranslator,
        RunTranslator,
        in_portions,
    )

    languages = _languages(options)
    translator: RunTranslator | ExportTranslator
    if config is None:
        translator = ExportTranslator(options.model, options.verify, languages)
    else:
        translator = RunTranslator(run_directory(options), config, options.n_best or 1, languages)
    with in_portions(
        options.output.with_name(f"{options.output.name}.portions"),
        options.texts or _lines_of_stdin(),
        translator,
        processes=options.processes,
        shard=options.shard,
        say=functools.partial(show, stream=sys.stderr),
    ) as portions:
        if portions is None:
            text = f"{shard_is_done(options)}: {options.output} appears with the last one."
            show(text, sys.stderr)
            return
        with as_user_errors(), text_file(options.output) as file:
            for number, found in enumerate(portions, 1):
                for line in _lines_of(number, found, options):
                    print(line, file=file)


def _one_portion_after_another(options: argparse.Namespace, config: RunConfig | None) -> None:
    """Prints what is translated before the next lines are read."""
    with StatusLine() as status:
        status.show(f"Loading {options.run_dir or options.model} ...")
        done = 0

        def progress(count: int) -> None:
            total = len(options.texts) or None
            status.show(bar(done + count, total, time.perf_counter() - started))

        translate = _translator(options, config, progress)
        started = time.perf_counter()
        # A person who types line by line wants to see each translation.
        at_once = 1 if not options.texts and _is_terminal(sys.stdin) else _LINES_AT_ONCE
        lines = iter(options.texts or _lines_of_stdin())
        with _output(options.output) as file:
            while some := list(itertools.islice(lines, at_once)):
                progress(0)
                for number, found in enumerate(translate(some), done + 1):
                    # Nothing of ours stands in the line of a terminal that a translation goes to.
                    is_seen = _is_terminal(file)
                    if is_seen:
                        status.clear()
                    for line in _lines_of(number, found, options):
                        # A file gets what the model has said, a terminal nothing to follow.
                        shown = printable_lines(line) if is_seen else line
                        print(shown, file=file, flush=options.output is None)
                done += len(some)


def _languages(options: argparse.Namespace) -> dict[str, Any]:
    return {f"{side}_language": getattr(options, f"{side}_language") for side in _SIDES}


def _translator(
    options: argparse.Namespace, config: RunConfig | None, progress: Callable[[int], None]
) -> Callable[[Sequence[str]], Iterable[Sequence[Translation]]]:
    """Returns the function from texts to the translations of each."""
    languages = _languages(options)
    if config is None:
        from keras_addnorm.serving import load_translator

        with as_user_errors():
            translator = load_translator(options.model, verify=options.verify)

        def translate(texts: Sequence[str]) -> Iterable[Sequence[Translation]]:
            with as_user_errors():
                return [[found] for found in translator(texts, **languages)]

        return translate
    run = load(options, config)

    from keras_addnorm.runs.translate import n_best_translations

    return functools.partial(
        n_best_translations, run, n_best=options.n_best or 1, done=progress, **languages
    )


def _lines_of(
    number: int, found: Sequence[Translation], options: argparse.Namespace
) -> Iterator[str]:
    for text, score in found:
        if options.n_best is not None:
            yield f"{number}\t{score:.4f}\t{text}"
        else:
            yield f"{score:.4f}\t{text}" if options.scores else text


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[Any]:
    """The standard output, or a device."""
    if path is None:
        yield sys.stdout
        return
    with text_file(path) as file:
        yield file


def _is_terminal(file: Any) -> bool:
    return bool(getattr(file, "isatty", lambda: False)())


def _lines_of_stdin() -> Iterator[str]:
    from keras_addnorm.data.readers.input_file import LONGEST_TEXT

    read = 0
    try:
        # Without a line end there may be no end at all.
        lines = iter(functools.partial(sys.stdin.readline, LONGEST_TEXT + 1), "")
        for number, line in enumerate(lines):
            if len(line) > LONGEST_TEXT:
                raise UserError(
                    f"Line {number + 1:,} of the standard input has more than {LONGEST_TEXT:,} "
                    "characters. Expected one text a line. Put line ends between the texts."
                )
            if "\0" in line and (
                encoding := wide_encoding(line[:BYTES_LOOKED_AT].encode("utf-8", "replace"))
            ):
                raise UserError(
                    f"The standard input is {encoding} text, as its zero bytes say. Expected "
                    f"UTF-8. {how_to_convert(encoding)}"
                )
            read = number + 1
            # A byte order mark is no part of the text.
            yield (line if number else line.removeprefix("\ufeff")).rstrip("\n")
    except UnicodeDecodeError as error:
        encoding = wide_encoding(error.object)
        hint = f" It is {encoding}. {how_to_convert(encoding)}" if encoding else ""
        # Decoding fails within the first block that no line was read from.
        place = read + 1 + len(_LINE_ENDS.findall(error.object[: error.start]))
        raise UserError(
            f"The standard input is not {error.encoding} text: line {place:,} has the byte "
            f"{error.object[error.start]:#04x}, {error.reason}.{hint}"
        ) from None


TRANSLATE = Command(
    "translate texts or lines",
    _DESCRIPTION,
    _add_arguments,
    _run,
    _check,
    usage="(RUN_DIR | --model DIR) [options] [TEXT ...]",
    resumes=_resumes,
)
