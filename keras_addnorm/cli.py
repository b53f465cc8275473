"""The command `keras-addnorm`: reads the command line and calls `keras_addnorm.runs`.

Heavy packages are imported only once a command is known, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_addnorm import __version__
from keras_addnorm.runs.command_parser import CommandParser
from keras_addnorm.runs.directory import RunDirectory, require_writable, text_file
from keras_addnorm.runs.errors import UserError, unknown_name
from keras_addnorm.runs.export import FORMATS, STORAGES
from keras_addnorm.runs.process_startup import (
    garbage_collection_paused,
    import_tensorflow_quietly,
    prepare_for_keras,
    prepare_for_training,
)
from keras_addnorm.runs.serve import serve_settings
from keras_addnorm.runs.setting_fields import Setting, list_settings
from keras_addnorm.runs.setting_flags import add_flags, given, in_words_of_a_command, whole_number
from keras_addnorm.runs.settings import DEMO_PAIRS, RunConfig
from keras_addnorm.runs.terminal import StatusLine, bar
from keras_addnorm.runs.toml_files import by_dotted_key, merge, read_toml

# Lines of a file translated at once: enough that lines of similar length share batches.
_LINES_AT_ONCE = 1024

_DESCRIPTION = """\
Trains, evaluates, uses and exports encoder-decoder Transformers for translation.

Start here:
  keras-addnorm demo                      the whole job on a built-in data set, in minutes

Then, with your own sentence pairs in a folder (train.en, train.de, val.en, val.de, test.en, ...):
  keras-addnorm train --data corpus --source en --target de --preset tiny --run-dir runs/mine
  keras-addnorm evaluate --run-dir runs/mine --split test
  keras-addnorm translate --run-dir runs/mine "A dog runs through the snow."
  keras-addnorm export --run-dir runs/mine saved_models/mine
  keras-addnorm serve saved_models/mine
  keras-addnorm inspect runs/mine --html report.html
  keras-addnorm prune --run-dir runs/mine

Every command has its own --help with examples.
"""

_DEMO = """\
Trains a small Pre-LN Transformer on the built-in data set (dates, prices, distances and the like
in real language, generated offline), translates 1,000 held-out sentences, draws the
cross-attention, exports a SavedModel and translates with it in a new process.

examples:
  keras-addnorm demo
  keras-addnorm demo --pair en-fr
"""

_TRAIN = """\
Trains a model. --data takes a file of sentence pairs (spa.txt, .tsv, .csv, .jsonl, .parquet, .tmx,
.xlf, .po, or - for stdin), a folder or a zip archive of parallel text (train.en, train.de, val.*,
test.*), a TensorFlow Datasets name (ted_hrlr_translate/pt_to_en), or the built-in set (demo/en-de).
Without a validation set some training pairs are held out. See docs/data.md.

Settings come from --config, from the flags below, and from --set for any other field of the model;
later ones win: run directory, then file, then flags, then --set. A flag has the name of its setting
in the file; where two tables have one of the same name, that of [training] has it, and the other
begins with its table (--evaluation-max-length). RUN_DIR/config.toml records all
of them. The same command again (or --resume without settings) resumes a run that was stopped or
killed, and

  keras-addnorm train --run-dir runs/mine --epochs 30

trains a finished run further. --start-from makes a new run with the tokenizers, weights and
settings of another one, for fine-tuning on other data.

examples:
  keras-addnorm train --data spa.txt --source en --target es --run-dir runs/mine
  keras-addnorm train --data corpus --source en --target de --run-dir runs/mine
  keras-addnorm train --config examples/multi30k_en_de.toml --data corpus --run-dir runs/mine
  keras-addnorm train --start-from runs/mine --data shop --run-dir runs/shop --epochs 5
  keras-addnorm train --start-from runs/opus --data shop --run-dir runs/shop --lora-rank 8
  keras-addnorm train --data demo/en-fr --source en --target fr --run-dir runs/deep \\
      --scheme deep_norm --norm rms_norm --num-encoder-layers 12
  keras-addnorm train --config recipe.toml --run-dir runs/mine --set model.positions=rotary
"""

_IMPORT = """\
Makes a run directory of a pretrained model, for evaluate, translate, inspect, export, and for a
fine-tuning: train --start-from. NAME is a folder that transformers or Marian wrote (Marian and
OPUS-MT, T5, mT5, M2M-100, NLLB, mBART, BART, Pegasus), or a name at huggingface.co. Nothing in it
is run; neither torch nor transformers is needed. A model of several languages is imported for one
direction, --source-language and --target-language, as its vocabulary names them. The pairs to
evaluate and inspect with are those of --data. See docs/pretrained.md.

examples:
  keras-addnorm import opus-mt-en-de --run-dir runs/opus
  keras-addnorm import Helsinki-NLP/opus-mt-en-de --run-dir runs/opus --data corpus
  keras-addnorm import nllb --run-dir runs/nllb --source-language eng_Latn \\
      --target-language deu_Latn
  keras-addnorm train --start-from runs/opus --data shop.tsv --run-dir runs/shop --epochs 3
"""

_EVALUATE = """\
Translates a split of the run's data and prints BLEU and chrF with their sacreBLEU signatures. The
scores are added to RUN_DIR/scores.json, the translations written to RUN_DIR/translations.txt.

examples:
  keras-addnorm evaluate --run-dir runs/mine
  keras-addnorm evaluate --run-dir runs/mine --split test_2016_flickr --num-beams 5
"""

_TRANSLATE = """\
Translates the given texts, or each line of the standard input, with a run or an exported model.
A long file is translated and printed in portions of about a thousand lines. On a terminal the
standard error says how far it is.

--n-best prints up to N translations of each text, the best first, each on a line of its own: the
number of the text, the score, and the translation, with tabs between.

examples:
  keras-addnorm translate --run-dir runs/mine "A dog runs." "Two dogs run."
  keras-addnorm translate --model saved_models/mine --output lines.de < lines.en
  keras-addnorm translate --run-dir runs/mine --num-beams 8 --n-best 3 --no-repeat-ngram 3 "A dog."
"""

_EXPORT = """\
Writes a SavedModel that takes strings and returns strings: DIRECTORY/<version>/, ready for
TensorFlow Serving, and for every program that has TensorFlow. See saved_models/README.md.

The other formats write DIRECTORY for a runtime without TensorFlow; its README.md has the code that
translates with it, and docs/runtimes.md says what each can do:

  ctranslate2   a C++ runtime with its own search: the fastest on a CPU in int8
  onnx          graphs of the encoder and of a step of the decoder, for ONNX Runtime and others
  litert        the same in one file for LiteRT, on phones and small devices

examples:
  keras-addnorm export --run-dir runs/mine saved_models/mine
  keras-addnorm export --run-dir runs/mine saved_models/mine --version 7 --num-beams 1
  keras-addnorm export --run-dir runs/mine saved_models/mine --storage float16
  keras-addnorm export --run-dir runs/mine saved_models/mine --shortlist 1024
  keras-addnorm export --run-dir runs/mine ct2/mine --format ctranslate2
  keras-addnorm export --run-dir runs/mine onnx/mine --format onnx --max-length 64
"""

_SERVE = """\
Serves an exported model over REST and gRPC, with the APIs of TensorFlow Serving, and a page to try
it at http://127.0.0.1:8501/. A new version in the folder replaces the old one without losing a
request; a broken version is refused. After SIGTERM or Ctrl-C the server answers the requests in
flight and ends. It is for development and small installations and needs: pip install
'keras-addnorm[serve]'. Serve only models that you trust. See docs/serving.md.

examples:
  keras-addnorm serve saved_models/mine
  keras-addnorm serve saved_models/mine --host 0.0.0.0 --port 8501 --grpc-port 8500
  keras-addnorm serve saved_models/mine --max-batch-size 16 --queue 64 --timeout 10
"""

_INSPECT = """\
Inspects a trained model with one forward and backward pass over some sentence pairs of its own
data. Prints the findings, each with its threshold, and a table of every sublayer:

  rms x, F(x), y   root mean square of the residual stream before the sublayer, of the sublayer's
                   output, and of the stream after its Add & Norm
  F/x              ratio of the sublayer's output to the stream
  cos              cosine between x and y: 1 where the sublayer changes nothing
  effect           relative change of y against a sublayer that gives zeros, whatever the scheme
  dL/dx, dL/dw     the loss's gradient at the stream and at the sublayer's weights

--html writes a page with charts, and attention maps of a sentence; it needs no network (and
plotly: pip install 'keras-addnorm[report]'). See docs/diagnostics.md.

examples:
  keras-addnorm inspect runs/mine
  keras-addnorm inspect runs/mine --html report.html --sentence "A dog runs through the snow."
  keras-addnorm inspect runs/mine --split test --batch-size 64 --json report.json
"""

_PRUNE = """\
Leaves sublayers out of a trained model and prints what each of them costs by itself, and what all
of them cost together: loss and perplexity of sentence pairs of a split, and BLEU (greedy search).
Without names, those sublayers are left out that `keras-addnorm inspect` calls nearly the identity.

--save writes the pruned model as a run directory, for evaluate, translate, export, and for a
training that makes up for it: train --start-from. See docs/monitor_prune_fold.md.

examples:
  keras-addnorm prune --run-dir runs/mine
  keras-addnorm prune --run-dir runs/mine encoder/2/self_attention decoder/3/feed_forward
  keras-addnorm prune --run-dir runs/mine encoder/2/self_attention --save runs/pruned
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The command line without the program's name; by default that of the process.

    Returns:
        The exit status: 0, or 2 if the user has to change something.
    """
    options = argparse.Namespace()
    try:
        try:
            options = build_parser().parse_args(arguments)
            options.check(options)
            if arguments is None:
                with garbage_collection_paused(), StatusLine.saying("Starting TensorFlow ..."):
                    options.prepare()
            options.run(options)
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"keras-addnorm: {in_words_of_a_command(str(error), options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        if getattr(options, "resumes", False):
            print("\nStopped. The same command goes on at the last checkpoint.", file=sys.stderr)
        return getattr(stop, "exit_status", 130)
    except BrokenPipeError:
        # Whoever reads has had enough. What Python still holds back would be an error at the end.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Builds the parser of the whole command line.

    Returns:
        The parser; each command's function is its option `run`.
    """
    parser = CommandParser(prog="keras-addnorm", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, add in _COMMANDS.items():
        add(commands, name)
    parser.commands = commands.choices
    return parser


def _nothing(options: argparse.Namespace) -> None:
    """Checks nothing."""


def _command(
    commands: Any,
    name: str,
    summary: str,
    description: str,
    run: Callable[[Any], None],
    prepare: Callable[[], None] = prepare_for_keras,
    *,
    usage: str = "[options]",
    check: Callable[[Any], object] = _nothing,
    resumes: bool = False,
) -> argparse.ArgumentParser:
    """Adds a command.

    `check` refuses what can be refused before Keras is imported; `resumes` says that the same
    command goes on where it was stopped.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=description, usage=f"%(prog)s {usage}"
    )
    parser.set_defaults(run=run, prepare=prepare, check=check, resumes=resumes, parser=parser)
    return parser


def _add_demo(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "the whole job on a built-in set",
        _DEMO,
        _demo,
        check=_check_demo,
        resumes=True,
    )
    parser.add_argument(
        "--pair",
        default="en-de",
        metavar="{" + ",".join(DEMO_PAIRS) + "}",
        help="the languages (default: %(default)s)",
    )
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="run directory (default: runs/demo-PAIR)"
    )
    parser.add_argument(
        "--export-dir",
        type=Path,
        metavar="DIR",
        default=Path("saved_models/demo"),
        help="where the SavedModel goes (default: %(default)s)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="try that everything works, with a useless model"
    )


def _check_demo(options: argparse.Namespace) -> None:
    if options.pair not in DEMO_PAIRS:
        raise unknown_name("--pair", options.pair, DEMO_PAIRS)


def _demo(options: argparse.Namespace) -> None:
    from keras_addnorm.runs.demo import demo

    demo(
        options.pair,
        options.run_dir,
        options.export_dir,
        quick=options.quick,
        verbose=_verbosity(),
    )


def _add_train(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "train a model, or resume a training",
        _TRAIN,
        _train,
        prepare=prepare_for_training,
        usage="--run-dir DIR [options]",
        check=_config_to_train,
        resumes=True,
    )
    _add_run_dir(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume; an error if there is no run to resume",
    )
    _add_settings(parser, list_settings(RunConfig), "training")
    parser.set_defaults(sets_anything=True)


def _config_to_train(options: argparse.Namespace) -> RunConfig:
    directory = RunDirectory(options.run_dir)
    goes_on = options.resume or directory.config.exists()
    settings = by_dotted_key(read_toml(options.config)) if options.config else {}
    settings |= given(options)
    start = settings.get("training.start_from")
    before = directory if goes_on else RunDirectory(start) if start else None
    return RunConfig.from_dict(merge(before.read_config().to_dict() if before else {}, settings))


def _train(options: argparse.Namespace) -> None:
    directory = RunDirectory(options.run_dir)

    from keras_addnorm.runs.train import train

    train(_config_to_train(options), directory, verbose=_verbosity())
    print(f"Done. Weights: {directory.weights()}. Log: {directory.log}, {directory.curves}.")


def _add_evaluate(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "score translations",
        _EVALUATE,
        _evaluate,
        usage="--run-dir DIR [options]",
        check=_config_of_run,
    )
    _add_run_dir(parser)
    parser.add_argument("--split", default="test", help="split to translate (default: test)")
    _add_settings(parser, _search_settings(), "evaluation")


def _evaluate(options: argparse.Namespace) -> None:
    run = _load_run(options)

    from keras_addnorm.runs.evaluate import evaluate, summary, table

    found = evaluate(run, options.split, verbose=int(_verbosity() == 1))
    print(table(found, run.config.evaluation.samples), end="\n\n")
    print(summary(found))


def _add_translate(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "translate texts or lines",
        _TRANSLATE,
        _translate,
        usage="(--run-dir DIR | --model DIR) [options] [TEXT ...]",
        check=_check_translate,
    )
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--run-dir", type=Path, metavar="DIR", help="a trained run")
    origin.add_argument("--model", type=Path, metavar="DIR", help="an exported model")
    parser.add_argument("--scores", action="store_true", help="print the score and a tab first")
    parser.add_argument(
        "--n-best",
        type=whole_number,
        metavar="N",
        help="print the N best translations of each text, with --run-dir and N beams or more",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write to a file, which appears when all is translated",
    )
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="by default the lines of stdin")
    _add_settings(parser, _search_settings(without=("samples", "bleu_tokenizer")), "evaluation")


def _check_translate(options: argparse.Namespace) -> None:
    if options.output is not None:
        require_writable(options.output)
    if options.run_dir is not None:
        search = _config_of_run(options).evaluation
        if options.n_best is not None and not 1 <= options.n_best <= search.num_beams:
            raise UserError(
                f"--n-best takes a number from 1 to the number of beams, {search.num_beams}; "
                f"received {options.n_best}. Pass --num-beams {max(options.n_best, 1)} or more."
            )
        return
    refused = [f"--{flag}" for flag, one in options.flags.items() if one.key in given(options)]
    refused += ["--n-best"] * (options.n_best is not None)
    if refused:
        raise UserError(
            f"An exported model has its search inside: {', '.join(refused)} cannot be chosen "
            "here. Export it again, or translate with --run-dir."
        )


def _translate(options: argparse.Namespace) -> None:
    with StatusLine() as status:
        _translate_showing(status, options)


def _translate_showing(status: StatusLine, options: argparse.Namespace) -> None:
    status.show(f"Loading {options.run_dir or options.model} ...")

    def progress(done: int) -> None:
        total = len(options.texts) or None
        status.show(bar(done, total, time.perf_counter() - started))

    translate = _translator(options, progress)
    started = time.perf_counter()
    # A person who types line by line wants to see each translation.
    at_once = 1 if not options.texts and _is_terminal(sys.stdin) else _LINES_AT_ONCE
    lines = iter(options.texts or _lines_of_stdin())
    done = 0
    with _output(options.output) as file:
        while some := list(itertools.islice(lines, at_once)):
            progress(done)
            for number, found in enumerate(translate(some, done), done + 1):
                # Nothing of ours stands in the line of a terminal that a translation goes to.
                if _is_terminal(file):
                    status.clear()
                for line in _lines_of(number, found, options):
                    print(line, file=file, flush=options.output is None)
            done += len(some)


def _lines_of(
    number: int, found: Sequence[tuple[str, float]], options: argparse.Namespace
) -> Iterator[str]:
    for text, score in found:
        if options.n_best is not None:
            yield f"{number}\t{score:.4f}\t{text}"
        else:
            yield f"{score:.4f}\t{text}" if options.scores else text


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[Any]:
    """The standard output, or a file that appears whole or not at all."""
    if path is None:
        yield sys.stdout
        return
    with text_file(path) as file:
        yield file


def _is_terminal(file: Any) -> bool:
    return bool(getattr(file, "isatty", lambda: False)())


def _lines_of_stdin() -> Iterator[str]:
    try:
        for number, line in enumerate(sys.stdin):
            # A byte order mark is no part of the text.
            yield (line if number else line.removeprefix("\ufeff")).rstrip("\n")
    except UnicodeDecodeError as error:
        is_utf_16 = error.object[:2] in (b"\xff\xfe", b"\xfe\xff")
        hint = " It looks like UTF-16: convert it with iconv -f UTF-16 -t UTF-8." * is_utf_16
        raise UserError(
            f"The standard input is not {error.encoding} text: {error}.{hint}"
        ) from None


def _translator(
    options: argparse.Namespace, progress: Callable[[int], None]
) -> Callable[[Sequence[str], int], Iterable[Sequence[tuple[str, float]]]]:
    """Returns the function from texts, and how many were before, to the translations of each."""
    if options.run_dir is None:
        from keras_addnorm.runs.translate import load_export

        translate = load_export(options.model)
        return lambda texts, before: [[found] for found in translate(texts)]
    run = _load_run(options)

    from keras_addnorm.runs.translate import n_best_translations

    return lambda texts, before: n_best_translations(
        run, texts, options.n_best or 1, done=lambda count: progress(before + count)
    )


def _add_export(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "write a SavedModel",
        _EXPORT,
        _export,
        usage="--run-dir DIR [options] DIRECTORY",
        check=_check_export,
    )
    _add_run_dir(parser)
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="folder of the versions")
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
    group.add_argument("--licence", metavar="TEXT", help="licence of the model, for its card")
    group.add_argument(
        "--storage",
        choices=STORAGES,
        help="how weights are stored; it computes as before (default: float32)",
    )
    without = ("samples", "bleu_tokenizer", "batch_size", "min_length", "no_repeat_ngram")
    _add_settings(parser, _search_settings(without), "evaluation")


def _check_export(options: argparse.Namespace) -> None:
    _config_of_run(options)
    chosen = FORMATS[options.format]
    flags = {one.key: flag for flag, one in options.flags.items()}
    keys = [*_own_arguments(options), *given(options)]
    if refused := [key for key in keys if not key.startswith(chosen.choices)]:
        taken = [
            f"--{flags.get(key, key)}"
            for key in ("version", "licence", "storage", *flags)
            if chosen.choices and key.startswith(chosen.choices)
        ]
        raise UserError(
            f"An export with --format {options.format} has no "
            f"{', '.join(f'--{flags.get(key, key)}' for key in refused)} inside. "
            f"Expected {' or '.join(taken) or 'neither a version nor a setting'}. "
            "Give the search to the runtime when you translate."
        )


def _own_arguments(options: argparse.Namespace) -> dict[str, Any]:
    own = {key: getattr(options, key) for key in ("version", "licence", "storage")}
    return {name: value for name, value in own.items() if value is not None}


def _export(options: argparse.Namespace) -> None:
    run = _load_run(options)
    for rule in run.config.evaluation.constraints:
        print(
            f"Note: the export translates without evaluation.{rule['name']}, which this run has.",
            file=sys.stderr,
        )
    with StatusLine.saying(f"Exporting to {options.directory} ..."):
        written = FORMATS[options.format].write(run, options.directory, **_own_arguments(options))
    print(written)


def _add_serve(commands: Any, name: str) -> None:
    # A served model needs no Keras, and a server has to return memory, which the allocator settings
    # for training prevent.
    parser = _command(
        commands,
        name,
        "serve a SavedModel",
        _SERVE,
        _serve,
        prepare=import_tensorflow_quietly,
        usage="[options] DIRECTORY",
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="folder of the versions")
    add_flags(parser, serve_settings(), titles={"": "settings"})


def _serve(options: argparse.Namespace) -> None:
    from keras_addnorm.runs.serve import serve

    serve(options.directory, **given(options))


def _add_inspect(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "inspect what Add & Norm does",
        _INSPECT,
        _inspect,
        usage="[options] RUN_DIR",
        check=lambda options: RunDirectory(options.run_dir).read_config(),
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="the run directory")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers")
    parser.add_argument(
        "--sentence", metavar="TEXT", help="draw its attention maps (default: the first pair)"
    )
    parser.add_argument(
        "--split", default="validation", help="split of the pairs (default: %(default)s)"
    )
    parser.add_argument(
        "--batch-size",
        type=whole_number,
        default=32,
        metavar="N",
        help="number of pairs (default: %(default)s)",
    )


def _inspect(options: argparse.Namespace) -> None:
    from keras_addnorm.runs.inspect import inspect, write
    from keras_addnorm.runs.trained_run import load_run

    with StatusLine.saying(f"Inspecting {options.run_dir} ..."):
        run = load_run(options.run_dir)
        report = inspect(
            run, options.split, batch_size=options.batch_size, sentence=options.sentence
        )
    print(report)
    for path in write(report, run, html=options.html, json_file=options.json):
        print(f"Written: {path}")


_DATA = """\
Looks through sentence pairs before a training: counts, lengths, scripts, and what looks wrong, each
with the first place where it stands. Training pairs that are in a validation or test set, exactly
or but for a word, are counted as well. --out writes a clean copy that train takes as --data:
training pairs with a fault are left out, validation and test sets are written whole.

INPUT is a file of pairs (spa.txt, .tsv, .csv, .jsonl, .parquet, .tmx, .xlf, .po; .gz and the like),
a folder or a zip archive of parallel text, the name of a data set, or - for the standard input. See
docs/data.md.

examples:
  keras-addnorm data spa.txt --source en --target es
  keras-addnorm data corpus --source en --target de --out clean
  keras-addnorm data opus.zip more.tmx --source en --target de --test newstest2014.tsv --out clean
"""

_FILE_SETTINGS = ("data_format", "source_column", "target_column")


def _nothing_to_prepare() -> None:
    """Does nothing: files of pairs are read without Keras and TensorFlow."""


def _add_data(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "look through sentence pairs, and clean them",
        _DATA,
        _data,
        prepare=_nothing_to_prepare,
    )
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="file, folder, archive or name")
    parser.add_argument(
        "--test", nargs="+", default=[], metavar="INPUT", help="test sets beside those of INPUT"
    )
    parser.add_argument("--source", metavar="LANGUAGE", help="by default what INPUT says")
    parser.add_argument("--target", metavar="LANGUAGE", help="by default what INPUT says")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write a clean copy")
    parser.add_argument(
        "--keep",
        nargs="+",
        default=[],
        metavar="FAULT",
        help="leave these pairs in the clean copy: duplicates, copies, broken_text, in_held_out, "
        "near_held_out, unlike_lengths, wrong_script",
    )
    parser.add_argument(
        "--max-chars",
        type=whole_number,
        default=1000,
        metavar="N",
        help="leave out pairs with a longer side (default: %(default)s)",
    )
    of_files = [one for one in list_settings(RunConfig) if one.key in _FILE_SETTINGS]
    add_flags(parser, of_files, titles={"": "files"})


def _data(options: argparse.Namespace) -> None:
    from keras_addnorm.runs.corpus_report import Corpus, examine, require_faults, write_clean
    from keras_addnorm.runs.text_data import reader_choice

    require_faults(options.keep)
    if options.out and options.out.exists():
        raise UserError(f"{str(options.out)!r} exists already. Choose another folder for --out.")
    of_files = {key: getattr(options, key) for key in vars(options) if key in _FILE_SETTINGS}
    with Corpus.opened(
        options.inputs,
        options.test,
        source=options.source,
        target=options.target,
        max_chars=options.max_chars,
        reader=reader_choice(**of_files),
    ) as corpus:
        report = examine(corpus)
        print(report, flush=True)
        if options.out:
            print(write_clean(corpus, report, options.out, options.keep))


def _add_prune(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "leave sublayers out, and see what it costs",
        _PRUNE,
        _prune,
        usage="--run-dir DIR [options] [SUBLAYER ...]",
        check=_check_prune,
    )
    _add_run_dir(parser)
    parser.add_argument(
        "sublayers", nargs="*", metavar="SUBLAYER", help="such as encoder/2/self_attention"
    )
    parser.add_argument(
        "--split", default="validation", help="split of the pairs (default: %(default)s)"
    )
    parser.add_argument(
        "--pairs",
        type=whole_number,
        default=128,
        metavar="N",
        help="number of sentence pairs (default: %(default)s)",
    )
    parser.add_argument(
        "--save", type=Path, metavar="DIR", help="write the pruned model as a run directory"
    )


def _check_prune(options: argparse.Namespace) -> None:
    RunDirectory(options.run_dir).read_config()
    if options.pairs < 1:
        raise UserError(f"There is nothing to measure with --pairs {options.pairs}. Expected 1 up.")
    if options.save is not None and options.save.exists():
        raise UserError(f"--save {options.save} exists. Expected the name of a new folder.")


def _prune(options: argparse.Namespace) -> None:
    from keras_addnorm.runs.prune import prune, save
    from keras_addnorm.runs.trained_run import load_run

    with StatusLine.saying("Measuring the model, with and without each sublayer ..."):
        run = load_run(options.run_dir)
        result = prune(run, options.sublayers, split=options.split, pairs=options.pairs)
    print(result)
    if options.save is not None:
        print(f"Written: {save(result.model, run, options.save)}")


def _add_import(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "make a run of a pretrained model",
        _IMPORT,
        _import,
        usage="NAME --run-dir DIR [options]",
        check=_check_import,
    )
    parser.add_argument("name", metavar="NAME", help="a folder or file, or a name at the hub")
    _add_run_dir(parser)
    parser.add_argument(
        "--family", metavar="NAME", help="the kind of checkpoint, where no config.json tells"
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language",
            metavar="TOKEN",
            help=f"the {side} language in the vocabulary's own words, such as deu_Latn",
        )
    of_the_data = [one for one in list_settings(RunConfig) if not one.table]
    _add_settings(parser, [*of_the_data, *_search_settings()], "evaluation")


def _check_import(options: argparse.Namespace) -> None:
    if options.run_dir.exists():
        raise UserError(f"--run-dir {options.run_dir} exists. Expected the name of a new folder.")


def _import(options: argparse.Namespace) -> None:
    from keras_addnorm.runs.pretrained_run import import_pretrained, summary

    with StatusLine.saying(f"Loading {options.name} ..."):
        loaded = import_pretrained(
            options.name,
            options.run_dir,
            given(options),
            family=options.family,
            source_language=options.source_language,
            target_language=options.target_language,
        )
    print(summary(options.name, loaded, options.run_dir))


# The ONE table of commands.
_COMMANDS: dict[str, Callable[[Any, str], None]] = {
    "demo": _add_demo,
    "train": _add_train,
    "import": _add_import,
    "evaluate": _add_evaluate,
    "translate": _add_translate,
    "export": _add_export,
    "serve": _add_serve,
    "inspect": _add_inspect,
    "data": _add_data,
    "prune": _add_prune,
}


def _add_run_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run-dir", type=Path, required=True, metavar="DIR", help="the run directory"
    )


def _search_settings(without: Sequence[str] = ()) -> list[Setting]:
    """The settings of [evaluation] that mean something to a command."""
    settings = (one for one in list_settings(RunConfig) if one.table == "evaluation")
    return [one for one in settings if one.name not in without]


def _add_settings(
    parser: argparse.ArgumentParser, settings: Iterable[Setting], own_table: str
) -> None:
    """Adds a flag for each setting, and `--set`."""
    settings = list(settings)
    add_flags(parser, settings, own_table)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting by its name in the TOML file, such as "
        + ("model.positions=rotary" if own_table == "training" else f"{settings[0].key}=2"),
    )


def _config_of_run(options: argparse.Namespace) -> RunConfig:
    """The configuration of a run; search settings that were given replace its own."""
    return RunDirectory(options.run_dir).read_config().replace(given(options))


def _load_run(options: argparse.Namespace) -> Any:
    """Loads a run with `_config_of_run`."""
    import dataclasses

    config = _config_of_run(options)

    with StatusLine.saying(f"Loading {options.run_dir} ..."):
        from keras_addnorm.runs.trained_run import load_run

        return dataclasses.replace(load_run(options.run_dir), config=config)


def _verbosity() -> int:
    """Keras' progress bars on a terminal; a line now and then in a file."""
    return 1 if sys.stdout.isatty() else 2


if __name__ == "__main__":
    sys.exit(main())
