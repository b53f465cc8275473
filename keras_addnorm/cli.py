"""The command `keras-addnorm`: reads the command line and calls `keras_addnorm.runs`.

Heavy packages are imported only once a command is known, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_addnorm import __version__
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import UserError
from keras_addnorm.runs.export import FORMATS
from keras_addnorm.runs.process_startup import (
    garbage_collection_paused,
    import_tensorflow_quietly,
    prepare_for_keras,
    prepare_for_training,
)
from keras_addnorm.runs.serve import serve_settings
from keras_addnorm.runs.setting_fields import Setting, convert, list_settings
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.toml_files import by_dotted_key, merge, parse_assignment, read_toml

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
later ones win: run directory, then file, then flags, then --set. RUN_DIR/config.toml records all
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
  keras-addnorm train --data demo/en-fr --source en --target fr --run-dir runs/deep \\
      --set model.scheme=deep_norm --set model.num_encoder_layers=12
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
A long file is translated and printed in portions of about a thousand lines.

examples:
  keras-addnorm translate --run-dir runs/mine "A dog runs." "Two dogs run."
  keras-addnorm translate --model saved_models/mine < lines.en > lines.de
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The command line without the program's name; by default that of the process.

    Returns:
        The exit status: 0, or 2 if the user has to change something.
    """
    own_process = arguments is None
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        if own_process:
            with garbage_collection_paused():
                options.prepare()
        options.run(options)
    except UserError as error:
        print(f"keras-addnorm: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print("\nStopped. The same command goes on at the last checkpoint.", file=sys.stderr)
        return getattr(stop, "exit_status", 130)
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Builds the parser of the whole command line.

    Returns:
        The parser; each command's function is its option `run`.
    """
    parser = argparse.ArgumentParser(
        prog="keras-addnorm",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, add in _COMMANDS.items():
        add(commands, name)
    return parser


def _command(
    commands: Any,
    name: str,
    summary: str,
    description: str,
    run: Callable[[Any], None],
    prepare: Callable[[], None] = prepare_for_keras,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, prepare=prepare)
    return parser


def _add_demo(commands: Any, name: str) -> None:
    parser = _command(commands, name, "the whole job on a built-in set", _DEMO, _demo)
    parser.add_argument(
        "--pair", default="en-de", help="en-de, en-fr or en-es (default: %(default)s)"
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
    )
    _add_run_dir(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume; an error if there is no run to resume",
    )
    _add_settings(parser, list_settings(RunConfig))


def _train(options: argparse.Namespace) -> None:
    directory = RunDirectory(options.run_dir)
    goes_on = options.resume or directory.config.exists()
    given = by_dotted_key(read_toml(options.config)) if options.config else {}
    given |= _given(options)
    start = given.get("training.start_from")
    before = directory if goes_on else RunDirectory(start) if start else None
    config = RunConfig.from_dict(merge(before.read_config().to_dict() if before else {}, given))

    from keras_addnorm.runs.train import train

    train(config, directory, verbose=_verbosity())
    print(f"Done. Weights: {directory.weights()}. Log: {directory.log}, {directory.curves}.")


def _add_evaluate(commands: Any, name: str) -> None:
    parser = _command(commands, name, "score translations", _EVALUATE, _evaluate)
    _add_run_dir(parser)
    parser.add_argument("--split", default="test", help="split to translate (default: test)")
    _add_settings(parser, _search_settings())


def _evaluate(options: argparse.Namespace) -> None:
    run = _load_run(options)

    from keras_addnorm.runs.evaluate import evaluate, summary, table

    found = evaluate(run, options.split, verbose=int(_verbosity() == 1))
    print(table(found, run.config.evaluation.samples), end="\n\n")
    print(summary(found))


def _add_translate(commands: Any, name: str) -> None:
    parser = _command(commands, name, "translate texts or lines", _TRANSLATE, _translate)
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--run-dir", type=Path, metavar="DIR", help="a trained run")
    origin.add_argument("--model", type=Path, metavar="DIR", help="an exported model")
    parser.add_argument("--scores", action="store_true", help="print the score and a tab first")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="by default the lines of stdin")
    _add_settings(parser, _search_settings())


def _translate(options: argparse.Namespace) -> None:
    translate = _translator(options)
    lines = iter(options.texts or _lines_of_stdin())
    while some := list(itertools.islice(lines, _LINES_AT_ONCE)):
        for text, score in translate(some):
            print(f"{score:.4f}\t{text}" if options.scores else text, flush=True)


def _lines_of_stdin() -> Iterator[str]:
    try:
        for line in sys.stdin:
            yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"The standard input is not {error.encoding} text: {error}.") from None


def _translator(
    options: argparse.Namespace,
) -> Callable[[Sequence[str]], Iterable[tuple[str, float]]]:
    if options.run_dir is None:
        if _given(options):
            raise UserError(
                "An exported model has its search inside: "
                f"{', '.join(_given(options))} cannot be changed. Export it again, or translate "
                "with --run-dir."
            )
        from keras_addnorm.runs.translate import load_export

        return load_export(options.model)
    run = _load_run(options)

    from keras_addnorm.runs.translate import translate_texts

    return functools.partial(translate_texts, run)


def _add_export(commands: Any, name: str) -> None:
    parser = _command(commands, name, "write a SavedModel", _EXPORT, _export)
    _add_run_dir(parser)
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="folder of the versions")
    parser.add_argument("--version", type=int, metavar="N", help="default: the next number")
    parser.add_argument(
        "--format",
        choices=tuple(FORMATS),
        default=next(iter(FORMATS)),
        help="default: %(default)s",
    )
    parser.add_argument("--licence", metavar="TEXT", help="licence of the model, for its card")
    _add_settings(parser, _search_settings())


def _export(options: argparse.Namespace) -> None:
    chosen = FORMATS[options.format]
    flags = {"version": options.version, "licence": options.licence}
    own = {name: value for name, value in flags.items() if value is not None}
    given = [*own, *_given(options)]
    if refused := [key for key in given if not key.startswith(chosen.choices)]:
        raise UserError(
            f"An export with --format {options.format} has no {', '.join(refused)} inside. "
            f"Expected {' or '.join(chosen.choices) or 'neither a version nor a setting'}. "
            "Give the search to the runtime when you translate."
        )
    run = _load_run(options)
    print(chosen.write(run, options.directory, **own))


def _add_serve(commands: Any, name: str) -> None:
    # A served model needs no Keras, and a server has to return memory, which the allocator settings
    # for training prevent.
    parser = _command(
        commands, name, "serve a SavedModel", _SERVE, _serve, prepare=import_tensorflow_quietly
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="folder of the versions")
    _add_flags(parser.add_argument_group("settings"), serve_settings())


def _serve(options: argparse.Namespace) -> None:
    from keras_addnorm.runs.serve import serve

    given = {one.key for one in serve_settings()} & vars(options).keys()
    serve(options.directory, **{key: getattr(options, key) for key in given})


def _add_inspect(commands: Any, name: str) -> None:
    parser = _command(commands, name, "inspect what Add & Norm does", _INSPECT, _inspect)
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
        type=int,
        default=32,
        metavar="N",
        help="number of pairs (default: %(default)s)",
    )


def _inspect(options: argparse.Namespace) -> None:
    directory = RunDirectory(options.run_dir)
    directory.read_config()

    from keras_addnorm.runs.inspect import inspect, write
    from keras_addnorm.runs.trained_run import load_run

    run = load_run(directory)
    report = inspect(run, options.split, batch_size=options.batch_size, sentence=options.sentence)
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
        type=int,
        default=1000,
        metavar="N",
        help="leave out pairs with a longer side (default: %(default)s)",
    )
    _add_flags(
        parser.add_argument_group("files"),
        [one for one in list_settings(RunConfig) if one.key in _FILE_SETTINGS],
    )


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


# The ONE table of commands.
_COMMANDS: dict[str, Callable[[Any, str], None]] = {
    "demo": _add_demo,
    "train": _add_train,
    "evaluate": _add_evaluate,
    "translate": _add_translate,
    "export": _add_export,
    "serve": _add_serve,
    "inspect": _add_inspect,
    "data": _add_data,
}


def _add_run_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run-dir", type=Path, required=True, metavar="DIR", help="the run directory"
    )


def _search_settings() -> list[Setting]:
    return [one for one in list_settings(RunConfig) if one.key.startswith("evaluation.")]


def _add_settings(parser: argparse.ArgumentParser, settings: Iterable[Setting]) -> None:
    """Adds a flag for each setting, and one for those that have none."""
    group = parser.add_argument_group("settings")
    _add_flags(group, settings)
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting by its name in the TOML file, such as model.hidden_dim=64",
    )


def _add_flags(group: Any, settings: Iterable[Setting]) -> None:
    """Adds a flag for each setting; one that is not given stays out of the options."""
    for one in settings:
        limits = f"{one.limits}; " if one.limits else ""
        text = f"{one.help} ({limits}default: {_shown(one.default)})"
        shape: dict[str, Any] = {
            "dest": one.key,
            "default": argparse.SUPPRESS,
            "help": text.replace("%", "%%"),
        }
        if one.kind is bool:
            shape["action"] = argparse.BooleanOptionalAction
        else:
            shape |= _reader(one.kind)
        group.add_argument(f"--{one.flag}", **shape)


def _reader(kind: Any) -> dict[str, Any]:
    """How a flag's text becomes a value."""
    if isinstance(kind, types.UnionType):
        return _reader(typing.get_args(kind)[0])
    if typing.get_origin(kind) is tuple:
        return {"nargs": "+", "type": int, "metavar": "N"}
    return {"type": kind, "metavar": kind.__name__.upper()}


def _shown(default: Any) -> str:
    if default in (None, (), ""):
        return "none"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given, by dotted key; `--set` wins over the flags."""
    kinds = {one.key: one.kind for one in list_settings(RunConfig)}
    given = {
        key: convert(key, value, kinds[key]) for key, value in vars(options).items() if key in kinds
    }
    return given | dict(map(parse_assignment, options.set))


def _load_run(options: argparse.Namespace) -> Any:
    """Loads a run; search settings that were given replace its own."""
    import dataclasses

    directory = RunDirectory(options.run_dir)
    config = directory.read_config().replace(_given(options))

    from keras_addnorm.runs.trained_run import load_run

    return dataclasses.replace(load_run(directory), config=config)


def _verbosity() -> int:
    """Keras' progress bars on a terminal; one line an epoch in a file."""
    return 1 if sys.stdout.isatty() else 2


if __name__ == "__main__":
    sys.exit(main())
