"""The command: what it prints, what it hands on, and how it says no."""

import argparse
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import pytest
from python_words import PYTHON_WORDS

from keras_addnorm import __version__, cli
from keras_addnorm.basics.fields import list_settings
from keras_addnorm.decoding import MinLength, NoRepeatNgram
from keras_addnorm.runs import RunConfig, RunDirectory, UserError, process_startup
from keras_addnorm.runs.setting_flags import flags_of
from keras_addnorm.runs.settings import SEARCH_SETTINGS

_CTRANSLATE2 = ("--format", "ctranslate2")


def _main(capsys, *arguments):
    status = cli.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("command", [(), *((name,) for name in cli.COMMANDS)])
def test_help_teaches(capsys, command):
    with pytest.raises(SystemExit) as stopped:
        cli.main([*command, "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert f"keras-addnorm {' '.join(command)}".rstrip() in text
    name = command[0] if command else "train"
    assert f"\n  keras-addnorm {name} " in text or f"\n  keras-addnorm {name}\n" in text


def test_the_help_of_train_has_every_default_range_and_choice(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    words = " ".join(capsys.readouterr().out.split()).replace("- ", "-").split(" data: ")[1]
    for flag, one in flags_of(list_settings(RunConfig), "training").items():
        text = re.search(rf"--{flag}[ ,].*?default: [^)]*", words)[0]
        limits = one.limits
        if limits is not None:
            shown = [limits.minimum, limits.maximum, limits.above, limits.below, limits.off]
            shown += limits.choices
            for part in (part for part in shown if part is not None):
                assert re.search(rf"(?<![\w.]){re.escape(str(part))}(?![\w.])", text), (text, part)
        if one.default not in (None, "", ()):
            assert text.endswith(f"default: {one.default}"), text


def _flags(name):
    return set(cli.build_parser().commands[name]._option_string_actions)


def test_a_command_offers_only_what_means_something_to_it():
    search = {"--num-beams", "--length-penalty", "--max-length", "--shortlist", "--splitting"}
    search |= {"--length-penalty-kind", "--beam-stopping"}
    rules = {"--min-length", "--no-repeat-ngram", "--forbidden-ids", "--max-length-factor"}
    expected = {
        "evaluate": {*search, *rules, "--batch-size", "--samples", "--split", "--run-dir"}
        | {"--bleu-tokenizer", "--no-verify", "--reference", "--processes", "--shard"}
        | {"--compare"},
        "translate": {*search, *rules, "--batch-size", "--run-dir", "--model", "--scores"}
        | {"--n-best", "--output", "--source-language", "--target-language", "--no-verify"}
        | {"--processes", "--shard"},
        "export": {*search, *rules, "--run-dir", "--format", "--version", "--licence", "--storage"}
        | {"--no-verify", "--engine"},
        "import": {*search, *rules, "--run-dir", "--family", "--source-language"}
        | {
            "--licence",
            "--ignore",
            "--text-prefix",
            "--target-language",
            "--data",
            "--source",
            "--target",
            "--validation",
            "--batch-size",
            "--no-verify",
        }
        | {"--data-format", "--source-column", "--target-column", "--samples", "--bleu-tokenizer"},
        "prune": {"--run-dir", "--split", "--pairs", "--save", "--no-verify"},
        "inspect": {"--html", "--json", "--sentence", "--split", "--batch-size", "--no-verify"}
        | {"--run-dir"},
        "explain": {"--html", "--sentence", "--run-dir"},
        "data": {"--source", "--target", "--test", "--out", "--keep", "--max-chars", "--example"}
        | {"--data-format", "--source-column", "--target-column"},
        "demo": {"--pair", "--run-dir", "--export-dir", "--quick"},
    }
    for name, flags in expected.items():
        given = {"--set"} if name in ("evaluate", "translate", "export", "import") else set()
        assert _flags(name) - {"-h", "--help"} == flags | given, name


def test_a_flag_has_the_name_of_its_setting_and_no_two_have_one():
    """Once, `train --max-length` limited the translations of an evaluation."""
    for name, own in (("train", "training"), ("evaluate", "evaluation"), ("serve", "")):
        parser = cli.build_parser().commands[name]
        flags = parser.get_default("flags")
        assert len({one.key for one in flags.values()}) == len(flags)
        for flag, one in flags.items():
            name_of_setting = one.name.replace("_", "-")
            assert flag in (name_of_setting, f"{one.table}-{name_of_setting}"), one.key
            assert flag == name_of_setting or one.table != own, one.key
            # `train --batch-size` once set that of evaluations.
            assert flag.startswith("evaluation-") == (one.table == "evaluation" != own), one.key


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--run-dir", "r", "--max-len", "40"], "it has no --max-len. Did you mean"),
        (["train", "--run-dir", "r", "--epoch", "4"], "Did you mean '--epochs'?"),
        (["train", "--run-dir", "r", "--epochs", "four"], "invalid whole number value: 'four'"),
        (["train", "--run-dir", "r", "--dropout", "x"], "invalid number value: 'x'"),
        (
            ["translate", "--run-dir", "r", "--samples", "3"],
            "flag of import and evaluate. See",
        ),
        (
            ["translate", "--run-dir", "r", "--split", "x"],
            "train, evaluate, inspect, prune and distill.",
        ),
        (["export", "--run-dir", "r", "d", "--hidden-dim", "4"], "--hidden-dim, which is a flag"),
        (["inspect", "r", "more"], "received 'more', for which there is no use"),
        (["evaluate"], "required: RUN_DIR. See"),
        (["translate"], "required: RUN_DIR or --model. See"),
        (["import", "opus"], "required: RUN_DIR. See"),
        (["export", "r"], "required: DIRECTORY. See"),
        (["train", "r", "more"], "received 'more', for which there is no use"),
        (["train", __file__], "is there already, and is no run directory. Expected"),
        (["train", str(Path(__file__).parent)], "is there already, and is no run directory"),
        (["trian"], "there is no 'trian'. Did you mean 'train'?"),
        (["export", "--run-dir", "r", "d", "--storage", "int4"], "'int8'"),
    ],
)
def test_an_unknown_flag_is_named_in_a_line(capsys, arguments, words):
    with pytest.raises(SystemExit) as stopped:
        cli.build_parser().parse_args(arguments)
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    program = " ".join(["keras-addnorm", *({arguments[0]} & {*cli.COMMANDS})])
    assert words in line and line.startswith(f"{program}: ")
    assert line.endswith(f"See {program} --help.")


@pytest.mark.parametrize(
    ("guess", "meant"),
    [
        ("--batch-size", ["--tokens-per-batch", "--evaluation-batch-size"]),
        ("--batch_size=64", ["--tokens-per-batch", "--evaluation-batch-size"]),
        ("--num-beams", ["--evaluation-num-beams"]),
        ("--beam-size", ["--evaluation-num-beams"]),
        ("--no_repeat_ngram", ["--evaluation-no-repeat-ngram"]),
        ("--lr", ["--peak-learning-rate"]),
        ("--patience", ["--early-stopping"]),
        ("--peak_learning_rate", ["--peak-learning-rate"]),
    ],
)
def test_train_answers_a_guess_with_all_that_may_be_meant(capsys, guess, meant):
    """What each of them is stands beside it."""
    with pytest.raises(SystemExit):
        cli.build_parser().parse_args(["train", "--run-dir", "r", guess, "64"])
    line = capsys.readouterr().err
    flags = cli.build_parser().commands["train"].get_default("flags")
    named = [f"{flag} ({flags[flag.removeprefix('--')].help})" for flag in meant]
    assert f"it has no {guess.partition('=')[0]}. Did you mean {' or '.join(named)}?" in line


@pytest.mark.parametrize("table", [{"batch_size": 64}, {"lr": 0.1}])
def test_a_file_is_answered_likewise(table):
    with pytest.raises(UserError, match=r"Did you mean 'training.(tokens_per|peak_lea)[a-z_]*'\?"):
        RunConfig.from_dict({"training": table})


def _parsed(*arguments):
    options = cli.build_parser().parse_args(list(map(str, arguments)))
    return {name: value for name, value in vars(options).items() if value is not None}


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "RUN", "--num-beams", 2],
        ["inspect", "--split", "test", "RUN"],
        ["prune", "RUN", "encoder/2/self_attention"],
        ["prune", "RUN"],
        ["export", "RUN", "exports"],
        ["export", "RUN", "--format", "onnx", "exports"],
        ["translate", "RUN", "A dog.", "Two dogs."],
        ["train", "RUN", "--epochs", 3],
        ["train", "--epochs", 3, "RUN"],
        ["import", "opus", "RUN", "--data", "corpus"],
    ],
)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_run_directory_needs_no_flag(tmp_path, arguments, is_there):
    run = tmp_path / "run"
    if is_there:
        RunDirectory(run).write_config(RunConfig())
    place = arguments.index("RUN")
    bare = [run if one == "RUN" else one for one in arguments]
    with_flag = [*bare[:place], "--run-dir", run, *bare[place + 1 :]]
    bare, with_flag = _parsed(*bare), _parsed(*with_flag)
    differing = {name for name in bare if bare[name] != with_flag[name]}
    assert differing <= {"parser", "flags"} and bare["run_dir"] == run


def test_a_run_may_have_the_name_of_a_command_and_no_empty_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    RunDirectory("evaluate").write_config(RunConfig())
    assert _parsed("evaluate", "evaluate/")["run_dir"] == Path("evaluate")
    RunDirectory(".").write_config(RunConfig())
    with pytest.raises(SystemExit):
        _parsed("evaluate", "")
    assert "argument --run-dir: expected a name or a path, received ''" in capsys.readouterr().err


def test_a_text_that_is_no_run_is_not_taken_for_one(tmp_path):
    options = _parsed("translate", "--model", "exports", "A dog.")
    assert (options["texts"], "run_dir" in options) == (["A dog."], False)


def test_explain_takes_runs_either_way(capsys, tmp_path):
    arguments = ("explain", "--html", tmp_path / "page.html")
    for runs in ([tmp_path], ["--run-dir", tmp_path]):
        status, _, err = _main(capsys, *arguments, *runs)
        assert status == 2 and f"{str(tmp_path)!r} is not a run directory" in err
    with pytest.raises(SystemExit):
        cli.main(list(map(str, arguments)))
    assert "required: RUN_DIR. See" in capsys.readouterr().err


def _named_places():
    """The arguments that are paths, files or names, but for settings: those have rules."""
    for name, parser in cli.build_parser().commands.items():
        for action in parser._actions:
            is_place = action.metavar in ("DIR", "FILE", "RUN_DIR", "DIRECTORY", "INPUT", "NAME")
            settings = {one.key for one in (parser.get_default("flags") or {}).values()}
            if is_place and action.dest not in settings and "language" not in action.dest:
                yield name, action


def test_no_path_is_empty():
    """`--run-dir "$RUN"` of a variable that is not set was the current folder."""
    places = list(_named_places())
    assert len(places) >= 20
    for name, action in places:
        for text in ("", " "):
            with pytest.raises(argparse.ArgumentTypeError, match="expected a name or a path"):
                action.type(text)
        assert str(action.type("a")) == "a", name
    for name in ("evaluate", "inspect", "prune"):
        with pytest.raises(argparse.ArgumentTypeError):
            cli.build_parser().commands[name]._option_string_actions["--split"].type("")


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "RUN", "--html", "DIR"],
        ["inspect", "RUN", "--json", "DIR"],
        ["explain", "RUN", "--html", "DIR"],
        ["demo", "--export-dir", "RUN/config.toml"],
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(capsys, tmp_path, arguments):
    run = tmp_path / "run"
    RunDirectory(run).write_config(RunConfig())
    given = [one.replace("RUN", str(run)).replace("DIR", str(tmp_path)) for one in arguments]
    options = cli.build_parser().parse_args(given)
    with pytest.raises(UserError, match=r"is a (folder|file)"):
        options.command.check(options)


def test_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"keras-addnorm {__version__}\n"


def _resolved(monkeypatch, *arguments):
    """The configuration that a command line hands to `train`."""
    handed = {}
    monkeypatch.setattr(
        "keras_addnorm.runs.train.train",
        lambda config, directory, **_: handed.update(config=config, directory=directory),
    )
    monkeypatch.setattr(RunDirectory, "weights", lambda self: self.best_weights)
    assert cli.main(["train", *map(str, arguments)]) == 0
    return handed["config"]


def test_a_command_reads_its_configuration_once(monkeypatch, tmp_path):
    """`check` makes it, and `run` gets it."""
    RunDirectory(tmp_path / "run").write_config(RunConfig())
    reads = []
    read = RunDirectory.read_config
    monkeypatch.setattr(
        RunDirectory, "read_config", lambda self: reads.append(self.path) or read(self)
    )
    _resolved(monkeypatch, "--run-dir", tmp_path / "run")
    assert reads == [tmp_path / "run"]


def test_flags_become_settings(monkeypatch, tmp_path):
    config = _resolved(
        monkeypatch,
        *("--run-dir", tmp_path, "--data", "corpus", "--source", "fr", "--target", "es"),
        *("--preset", "small", "--tokenizer", "unigram", "--no-joint", "--bucket-lengths", 8, 16),
        *("--no-jit-compile", "--clipnorm", 1, "--max-length", 31, "--peak-learning-rate", "1e-3"),
        *("--evaluation-max-length", 33, "--scheme", "deep_norm", "--norm", "rms_norm"),
        *("--split", "train[:10%]"),
        *("--kernel-initializer", "he_normal", "--dropout", "0.25"),
        *("--set", "model.hidden_dim=64", "--set", "model.positions=rotary", "--set", "data=last"),
    )
    assert config == RunConfig.from_dict(
        {
            "data": "last",
            "source": "fr",
            "target": "es",
            "split": "train[:10%]",
            "tokenizer": {"kind": "unigram", "joint": False},
            "model": {
                "preset": "small",
                "hidden_dim": 64,
                "scheme": "deep_norm",
                "norm": "rms_norm",
                "kernel_initializer": "he_normal",
                "dropout": 0.25,
                "positions": "rotary",
            },
            "training": {
                "max_length": 31,
                "bucket_lengths": [8, 16],
                "jit_compile": False,
                "clipnorm": 1.0,
                "peak_learning_rate": 0.001,
            },
            "evaluation": {"max_length": 33},
        }
    )


def test_run_directory_then_file_then_flags(monkeypatch, tmp_path):
    before = RunConfig().replace({"training.epochs": 3, "training.seed": 5, "data": "before"})
    RunDirectory(tmp_path / "run").write_config(before)
    (tmp_path / "file.toml").write_text("data = 'file'\n[training]\nepochs = 7\n")
    config = _resolved(
        monkeypatch, "--run-dir", tmp_path / "run", "--config", tmp_path / "file.toml",
        "--epochs", 11,
    )  # fmt: skip
    assert (config.data, config.training.epochs, config.training.seed) == ("file", 11, 5)


@pytest.mark.parametrize("place", ["flag", "file"])
def test_a_run_that_starts_from_another_has_its_settings(monkeypatch, tmp_path, place):
    other = RunConfig().replace({"model.hidden_dim": 32, "training.seed": 5, "data": "before"})
    RunDirectory(tmp_path / "other").write_config(other)
    own = RunConfig().replace({"training.seed": 6, "training.start_from": "gone"})
    RunDirectory(tmp_path / "begun").write_config(own)
    start = {"flag": ["--start-from", tmp_path / "other"], "file": ["--config", tmp_path / "toml"]}
    text = f"training.start_from = '{tmp_path / 'other'}'\n"
    (tmp_path / "toml").write_text(text, encoding="utf-8")

    arguments = [*start[place], "--data", "shop"]
    config = _resolved(monkeypatch, "--run-dir", tmp_path / "new", *arguments)
    changes = {"data": "shop", "training.start_from": str(tmp_path / "other")}
    assert config == other.replace(changes)
    # A run that has begun has settings of its own.
    config = _resolved(monkeypatch, "--run-dir", tmp_path / "begun", *arguments)
    assert config == own.replace(changes)


def test_other_data_are_not_cut_as_those_of_the_run_to_start_from(monkeypatch, tmp_path):
    data = {"data": "a.csv", "split": "train[:9]", "validation": "dev.tsv", "source_column": "q"}
    other = RunConfig.from_dict({**data, "data_format": "csv", "source": "fr"})
    RunDirectory(tmp_path / "other").write_config(other)
    start = ("--start-from", tmp_path / "other", "--run-dir", tmp_path / "new")
    config = _resolved(monkeypatch, *start, "--data", "shop", "--validation", "train[:5]")
    assert config == RunConfig.from_dict(
        {
            "data": "shop",
            "source": "fr",
            "validation": "train[:5]",
            "training": {"start_from": str(tmp_path / "other")},
        }
    )
    same = _resolved(monkeypatch, *start)
    assert same == other.replace({"training.start_from": str(tmp_path / "other")})


def test_a_run_that_starts_from_another_has_a_warm_up_of_its_own(monkeypatch, tmp_path):
    """The first run's is that of its number of updates, and may be longer than all the new ones."""
    long = {"training.max_updates": 900, "training.validate_every": 300}
    other = RunConfig().replace({"training.warmup_steps": 700, "training.beta_2": 0.9, **long})
    RunDirectory(tmp_path / "other").write_config(other)
    start = ("--run-dir", tmp_path / "new", "--start-from", tmp_path / "other")
    for flags, steps in (((), None), (("--warmup-steps", "5"), 5)):
        training = _resolved(monkeypatch, *start, *flags).training
        assert (training.warmup_steps, training.beta_2) == (steps, 0.9)
        assert (training.max_updates, training.validate_every) == (0, 300)
    own = ("--run-dir", tmp_path / "other", "--epochs", "9")
    training = _resolved(monkeypatch, *own).training
    assert (training.warmup_steps, training.max_updates) == (700, 900)


@pytest.mark.parametrize("languages", [("en", "de"), ("de", "en")])
def test_the_recipes_are_configurations(languages):
    name = f"multi30k_{'_'.join(languages)}.toml"
    config = RunConfig.read(Path(__file__).parents[2] / "examples" / name)
    assert (config.source, config.target) == languages
    assert (config.model.preset, config.model.overrides["scheme"]) == ("tiny", "pre_ln")
    assert config.training.peak_learning_rate == 0.005


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--pair", "en-ed"], "Unknown --pair 'en-ed'. Did you mean"),
        (["train", "--run-dir", "DIR", "--set", "training.epoch=3"], "'training.epochs'"),
        (["train", "--run-dir", "DIR", "--epochs", "0"], ": --epochs must be at least 1"),
        (["train", "--run-dir", "DIR", "--set", "training.epochs=0"], "training.epochs must be"),
        (["train", "--run-dir", "DIR", "--scheme", "pre_nl"], "--scheme 'pre_nl'. Did you mean"),
        (["train", "--run-dir", "DIR", "--preset", "tinny"], "--preset 'tinny'. Did you mean"),
        (["train", "--run-dir", "DIR", "--hidden-dim", "0"], "--hidden-dim must be at least 1"),
        (["train", "--run-dir", "DIR", "--config", "none.toml"], "no configuration file"),
        (["train", "--run-dir", "DIR", "--data", "./nowhere"], "nowhere"),
        (["train", "--run-dir", "DIR", "--resume"], "is not a run directory"),
        (["evaluate", "--run-dir", "DIR"], "is not a run directory"),
        (["translate", "--run-dir", "DIR", "text"], "is not a run directory"),
        (["translate", "--model", "DIR", "text"], "There is no exported model"),
        (
            ["translate", "A dog.", "text"],
            "'A dog.' is not a run directory: there is nothing",
        ),
        (["translate", "--model", "DIR", "--num-beams", "2", "a"], "inside: --num-beams cannot"),
        (["translate", "--model", "DIR", "--n-best", "2", "a"], "inside: --n-best cannot"),
        (["evaluate", "--run-dir", "RUN", "--set", "model.hidden_dim=3"], "has no setting 'model."),
        (
            ["evaluate", "--run-dir", "RUN", "--compare", "RUN", "--shard", "1/2"],
            "do not go together",
        ),
        (["evaluate", "--run-dir", "RUN", "--compare", "DIR"], "is not a run directory"),
        (["translate", "--run-dir", "RUN", "--n-best", "9", "a"], "Pass --num-beams 9 or more"),
        (["translate", "--run-dir", "RUN", "--output", "DIR", "a"], "is a folder. Expected the"),
        (["translate", "--run-dir", "RUN", "--shard", "1/2", "a"], "need a file: what several"),
        (["translate", "--run-dir", "RUN", "--processes", "2", "a"], "Pass --output FILE"),
        (["translate", "--run-dir", "RUN", "--min-length", "9", "--max-length", "5"], "at most"),
        (["prune", "--run-dir", "DIR"], "is not a run directory"),
        (["prune", "--run-dir", "RUN", "--save", "DIR"], "Expected the name of a new folder"),
        (["prune", "--run-dir", "RUN", "--pairs", "0"], "--pairs 0"),
        (["inspect", "DIR"], "is not a run directory"),
        (["export", "--run-dir", "DIR", "DIR"], "is not a run directory"),
        (
            ["export", "--run-dir", "RUN", "d", "--format", "ctranslate2", "--storage", "int8"],
            "has no --storage inside. Expected neither a version nor a setting",
        ),
        (
            ["export", "--run-dir", "RUN", "d", "--format", "ctranslate2", "--num-beams", "1"],
            "when",
        ),
        (
            ["export", "--run-dir", "RUN", "d", "--format", "onnx", "--num-beams", "1"],
            "Expected --max-length",
        ),
    ],
)
def test_a_users_error_is_one_message_and_status_2(capsys, tmp_path, arguments, message):
    run = tmp_path / "run"
    RunDirectory(run).write_config(RunConfig())
    places = {"DIR": str(tmp_path), "RUN": str(run)}
    status, out, err = _main(capsys, *(places.get(a, a) for a in arguments))
    assert status == 2
    assert not PYTHON_WORDS.findall(err)
    assert err.startswith("keras-addnorm: ")
    assert message in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--run-dir", "RUN", "--scheme", "pre_nl"],
        ["train", "--run-dir", "RUN", "--epochs", "0"],
        ["evaluate", "--run-dir", "RUN", "--num-beams", "0"],
        ["translate", "--run-dir", "DIR", "text"],
        ["export", "--run-dir", "RUN", "d", "--format", "onnx", "--licence", "MIT"],
        ["demo", "--pair", "en-xx"],
        ["data", "spa.txt", "--keep", "copys"],
        ["data", "spa.txt", "--data-format", "cvs"],
    ],
)
def test_what_can_be_refused_at_once_is_refused_before_keras_is_imported(tmp_path, arguments):
    RunDirectory(tmp_path / "run").write_config(RunConfig())
    places = {"DIR": str(tmp_path), "RUN": str(tmp_path / "run")}
    options = cli.build_parser().parse_args([places.get(a, a) for a in arguments])
    with pytest.raises(UserError):
        options.command.check(options)


@pytest.fixture
def shouting(monkeypatch):
    """An export that puts texts into capitals; lists how many it got at a time."""
    portions = []

    def translator(texts, source_language, target_language):
        portions.append(len(texts))
        return [(text.upper(), -1.0) for text in texts]

    monkeypatch.setattr("keras_addnorm.serving.load_translator", lambda *_, **__: translator)
    return portions


def test_standard_input_has_to_be_text(capsys, monkeypatch, shouting):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    status, _, err = _main(capsys, "translate", "--model", "some")
    assert (status, err.startswith("keras-addnorm: The standard input is not utf-8")) == (2, True)


@pytest.mark.parametrize("before", [0, 3, 5_000])
def test_the_line_that_is_no_text_is_named(capsys, monkeypatch, shouting, before):
    """Wherever a block of the input ends."""
    content = b"\xc3\xa4 dog\r\n" * before + b"a \xff dog\nb\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    status, _, err = _main(capsys, "translate", "--model", "some")
    assert (status, f"line {before + 1:,} has the byte 0xff, invalid start byte" in err) == (
        2,
        True,
    )


def test_a_line_without_an_end_is_named_and_not_repeated(capsys, monkeypatch, shouting):
    """It may come for ever: no more of it is read than a text may have."""
    read = []

    def readline(size):
        read.append(size)
        return "a dog\n" if len(read) < 3 else "x" * size

    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(readline=readline))
    status, out, err = _main(capsys, "translate", "--model", "some")
    assert (status, out, len(read)) == (2, "", 3)
    assert err.startswith("keras-addnorm: Line 3 of the standard input has more than 4,194,304")
    assert len(err) < 300


def test_f5_a_byte_order_mark_of_standard_input_is_no_text(capsys, monkeypatch, shouting):
    content = b"\xef\xbb\xbfa dog\nb\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    assert _main(capsys, "translate", "--model", "some")[:2] == (0, "A DOG\nB\n")


@pytest.mark.parametrize("mark", ["\ufeff", ""])
@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
@pytest.mark.parametrize("text", ["a dog\nb\n", "größer\n"])
def test_f5_standard_input_in_utf16_says_how_to_convert_it(
    capsys, monkeypatch, shouting, encoding, mark, text
):
    content = (mark + text).encode(encoding)
    name = encoding[:6] if mark else encoding
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    status, _, err = _main(capsys, "translate", "--model", "some")
    assert (status, f": iconv -f {name} -t UTF-8 | keras-addnorm" in err) == (2, True)


def test_a_long_file_is_translated_in_portions(capsys, monkeypatch, shouting):
    """What is translated is printed before the next lines are read."""

    def lines():
        yield from (f"line {index}\n" for index in range(1500))
        assert capsys.readouterr().out.splitlines() == [f"LINE {i}" for i in range(1024)]
        yield "the end"

    rest = lines()
    source = types.SimpleNamespace(readline=lambda size: next(rest, ""))
    monkeypatch.setattr("sys.stdin", source)
    status, out, _ = _main(capsys, "translate", "--model", "some")
    assert (status, shouting) == (0, [1024, 477])
    assert out.splitlines() == [*(f"LINE {index}" for index in range(1024, 1500)), "THE END"]


def test_u4_only_a_training_goes_on_after_ctrl_c(capsys, monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_addnorm.runs.demo.demo", interrupted)
    monkeypatch.setattr("keras_addnorm.runs.train.train", interrupted)
    monkeypatch.setattr("keras_addnorm.serving.load_translator", interrupted)
    for arguments in (["demo"], ["train", "--run-dir", tmp_path]):
        status, _, err = _main(capsys, *arguments)
        assert (status, "Stopped. What is written is whole" in err) == (130, True)
    assert _main(capsys, "translate", "--model", "some", "text") == (130, "", "")
    (tmp_path / "saved_model.pb").touch()
    output = tmp_path / "lines.de"
    said = _main(capsys, "translate", "--model", tmp_path, "--output", output, "text")
    assert (said[0], "the same command goes on" in said[2]) == (130, True)


def test_sigterm_stops_with_a_word_what_goes_on(capsys, monkeypatch, tmp_path):
    def terminated(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr("keras_addnorm.runs.train.train", terminated)
    monkeypatch.setattr("keras_addnorm.runs.distillation.distill.distill", terminated)
    distill = ["distill", tmp_path, "--teacher", "some"]
    for arguments in (["train", "--run-dir", tmp_path], distill):
        status, _, err = _main(capsys, *arguments)
        assert (status, "the same command goes on" in err) == (128 + signal.SIGTERM, True)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_u3_a_reader_that_has_enough_is_no_error(capsys, monkeypatch, shouting):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Closed())
    assert cli.main(["translate", "--model", "some", "a", "b"]) == 141
    assert capsys.readouterr().err == ""


def test_u3_not_even_at_the_end_of_the_process():
    """Python writes what it still holds when it ends, and would complain then."""
    script = "import sys; from keras_addnorm import cli; sys.exit(cli.main(['--version']))"
    held = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdout=closed,
            stderr=subprocess.PIPE,
            env={**held, "PYTHONPATH": str(Path(__file__).parents[2])},
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_person_sees_how_far_a_translation_is(monkeypatch, shouting):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    assert cli.main(["translate", "--model", "some", "a", "b"]) == 0
    shown = screen.getvalue().split("\r\x1b[K")
    assert "Loading some ..." in shown
    assert any(line.startswith("Translating: [") and "of 2 texts" in line for line in shown)
    assert shown[-1] == "", "nothing of it stays"


def test_a_terminal_gets_nothing_to_follow_and_a_file_what_was_said(
    monkeypatch, shouting, tmp_path
):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("sys.stdout", screen)
    arguments = ["translate", "--model", "a\x1b[2J\nb", "a\x9bb"]
    assert cli.main(arguments) == 0
    shown = screen.getvalue().replace("\r\x1b[K", "").replace("\n", "")
    assert shown.isprintable()
    assert r"Loading a\x1b[2J\nb ..." in shown and shown.endswith(r"A\x9bB")
    with (tmp_path / "out").open("w", encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdout", file)
        assert cli.main(arguments) == 0
    assert (tmp_path / "out").read_text(encoding="utf-8") == "A\x9bB\n"


def test_who_types_line_by_line_gets_each_translation(capsys, monkeypatch, shouting):
    typed = Terminal("one\ntwo\n")
    monkeypatch.setattr("sys.stdin", typed)
    assert _main(capsys, "translate", "--model", "some")[:2] == (0, "ONE\nTWO\n")
    assert shouting == [1, 1]


def test_m6_an_output_file_is_whole_or_not_there(capsys, monkeypatch, shouting, tmp_path):
    path = tmp_path / "folder" / "lines.de"
    (tmp_path / "saved_model.pb").touch()
    of_file = ("translate", "--model", tmp_path, "--output", path)
    assert _main(capsys, *of_file, "ä", "b")[:2] == (0, "")
    assert path.read_text(encoding="utf-8") == "Ä\nB\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff\n"), "utf-8"))
    assert _main(capsys, *of_file)[0] == 2
    assert path.read_text(encoding="utf-8") == "Ä\nB\n"
    assert os.listdir(path.parent) == ["lines.de"]


def test_m6_the_best_translations_of_each_text(capsys, monkeypatch, tmp_path):
    RunDirectory(tmp_path).write_config(RunConfig())
    seen = []

    def n_best_translations(run, texts, n_best, done, **_):
        seen.append((run.config.search().constraints, n_best))
        return [[(f"{text}{i}", -i - 0.5) for i in range(n_best)] for text in texts]

    @dataclasses.dataclass
    class Run:
        config: RunConfig

    monkeypatch.setattr("keras_addnorm.runs.trained_run.load_run", lambda _: Run(RunConfig()))
    monkeypatch.setattr("keras_addnorm.runs.translate.n_best_translations", n_best_translations)
    rules = ["--min-length", 3, "--no-repeat-ngram", 2]
    status, out, _ = _main(
        capsys, "translate", "--run-dir", tmp_path, "--n-best", 2, *rules, "a", "b"
    )
    lines = ["1\t-0.5000\ta0", "1\t-1.5000\ta1", "2\t-0.5000\tb0", "2\t-1.5000\tb1"]
    assert (status, out.splitlines()) == (0, lines)
    assert seen == [((MinLength(3), NoRepeatNgram(2)), 2)]


def test_storage_goes_to_the_export(capsys, monkeypatch, tmp_path):
    def export(*_, **choices):
        return choices

    RunDirectory(tmp_path).write_config(RunConfig())
    directory = types.SimpleNamespace(read_scores=dict, log=tmp_path / "log.csv")
    run = types.SimpleNamespace(
        model=0, tokenizers=0, config=RunConfig(), search=RunConfig().search, directory=directory
    )
    monkeypatch.setattr("keras_addnorm.runs.commands.export.load", lambda *_: run)
    monkeypatch.setattr("keras_addnorm.serving.export_saved_model", export)
    arguments = ("export", "--run-dir", tmp_path, "d", "--storage", "int8")
    status, out, _ = _main(capsys, *arguments)
    assert (status, "'storage': 'int8'" in out) == (0, True)


@pytest.mark.parametrize(
    ("environment", "config", "words"),
    [
        ({"KERAS_BACKEND": "torch"}, None, "'torch' (says KERAS_BACKEND), which is not installed"),
        ({}, "jax", "'jax' (says HOME/keras.json), which is not installed"),
        ({"KERAS_BACKEND": "abacus"}, None, "no backend 'abacus' (says KERAS_BACKEND)"),
    ],
)
def test_u5_a_missing_backend_is_a_sentence(monkeypatch, tmp_path, environment, config, words):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if config:
        (tmp_path / "keras.json").write_text(json.dumps({"backend": config}))
    name = config or environment["KERAS_BACKEND"]
    error = ModuleNotFoundError(f"No module named {name!r}", name=name)
    if name == "abacus":
        error = ValueError("Unable to import backend : abacus")

    with pytest.raises(UserError) as caught, process_startup.backend_as_user_error():
        raise error
    assert words.replace("HOME", str(tmp_path)) in str(caught.value)
    assert "KERAS_BACKEND=tensorflow" in str(caught.value)


@pytest.mark.parametrize("level", [None, "2", "3", "1", "0"])
def test_a_log_level_asks_for_no_more_noise_than_none(capfd, monkeypatch, level):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    if level is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    process_startup._quietly(lambda: os.write(2, b"oneDNN custom operations are on"))
    assert ("oneDNN" in capfd.readouterr().err) == (level in ("0", "1"))


def _print_in_a_command(tmp_path, show, **environment):
    """Runs a command in its own process that does something else than its work."""
    code = (
        "import gc, os, resource, sys\n"
        "from keras_addnorm import cli\n"
        f"def show(options, _):\n{textwrap.indent(show, '    ')}\n"
        "cli.COMMANDS['demo'] = cli.Command('', '', lambda parser: None, show)\n"
        "sys.exit(cli.main())\n"
    )
    script = tmp_path / "command.py"
    script.write_text(code)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(script), "demo"],
        env={**clean, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_the_process_gets_its_allocator_settings_once(tmp_path):
    names = "print(*sorted(k[7:] for k in os.environ if k.startswith('MALLOC_')))"

    def settings(**environment):
        return _print_in_a_command(tmp_path, names, **environment).split()

    assert settings(KERAS_BACKEND="tensorflow") == ["MMAP_THRESHOLD_", "TRIM_THRESHOLD_"]
    assert settings(KERAS_BACKEND="jax") == ["ARENA_MAX", "MMAP_THRESHOLD_", "TRIM_THRESHOLD_"]
    assert settings(KERAS_ADDNORM_ALLOCATOR="default") == []
    assert settings(MALLOC_TRIM_THRESHOLD_="1000000") == ["TRIM_THRESHOLD_"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_no_garbage_is_looked_for_among_imports(tmp_path, backend):
    shown = "gc.get_stats()[0]['collections'], gc.get_freeze_count(), gc.isenabled()"
    collections, frozen, goes_on = _print_in_a_command(
        tmp_path, f"print({shown})", KERAS_BACKEND=backend
    ).split()
    # Importing Keras makes more than a hundred thousand objects; every 700 were looked through.
    assert int(collections) < 100 < 100_000 < int(frozen)
    assert goes_on == "True"


MIB_OF_FORTY_STEPS = """\
import jax, jax.numpy as jnp

step = jax.jit(lambda x: jnp.max(jnp.cumsum(x @ x.T, axis=0)))  # 64 MiB and more a step
x = jnp.ones((4096, 4))
step(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    step(x).block_until_ready()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize() >> 20)
"""


@pytest.mark.slow
def test_steps_on_jax_keep_their_memory(tmp_path):
    """Where a hole in the heap is too small it grows, but not at each step."""
    faulted_in = _print_in_a_command(tmp_path, MIB_OF_FORTY_STEPS, KERAS_BACKEND="jax")
    assert int(faulted_in) < 20 * 64


@pytest.mark.slow
def test_the_quick_demo_then_every_other_command(capsys, tmp_path, monkeypatch):
    """The demo trains, evaluates, draws, exports and reloads; the commands go on with its run."""
    run, exports = tmp_path / "run", tmp_path / "exports"
    status, out, _ = _main(
        capsys, "demo", "--quick", "--pair", "en-fr", "--run-dir", run, "--export-dir", exports
    )
    assert status == 0
    assert "exact match: 0.0 %" in out.splitlines()
    # What it does not know, and what to do next, with the paths of this run.
    assert "A dog runs through the snow." in out and f"keras-addnorm inspect {run}" in out
    assert out.count("  translation  ") == 8
    assert (run / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (exports / "1" / "saved_model.pb").exists()

    status, out, _ = _main(
        capsys, "evaluate", "--run-dir", run, "--split", "test[:5]", "--samples", 2
    )
    assert status == 0
    assert out.count("  translation  ") == 2
    assert "nrefs:1|case:lc" in out
    scores = json.loads((run / "scores.json").read_text())["test[:5]"]
    assert scores["sentences"] == 5 and scores.keys() >= {*SEARCH_SETTINGS}

    status, from_run, _ = _main(capsys, "translate", "--run-dir", run, "Emma was born.", "")
    assert status == 0
    assert len(from_run.splitlines()) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("Emma was born.\n\n"))
    status, from_export, _ = _main(capsys, "translate", "--model", exports)
    assert (status, from_export) == (0, from_run)

    status, out, _ = _main(capsys, "export", "--run-dir", run, exports, "--num-beams", 2)
    assert (status, out) == (0, f"{exports / '2'}\n")
    card = json.loads((exports / "2" / "assets.extra" / "model.json").read_text())
    assert "2" in json.dumps(card)

    status, out, _ = _main(capsys, "export", "--run-dir", run, tmp_path / "ct2", *_CTRANSLATE2)
    assert (status, out) == (0, f"{tmp_path / 'ct2'}\n")
    assert (tmp_path / "ct2" / "model.bin").is_file()
    status, _, err = _main(capsys, "export", "--run-dir", run, tmp_path / "ct2", *_CTRANSLATE2)
    assert (status, "exists. Expected the name of a new folder" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--version >&-", 0, ("", "")),
        ("translate nothing a 2>&-", 2, ("", "")),
        ("translate nothing - <&-", 2, ("", "'nothing' is not a run directory")),
    ],
)
def test_closed_streams_lead_nowhere(words, status, said):
    done = subprocess.run(
        f'"{sys.executable}" -m keras_addnorm.cli {words}',
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    for printed, expected in zip((done.stdout, done.stderr), said, strict=True):
        assert expected in printed and (expected or not printed)


def test_an_output_that_has_no_such_character_is_named(monkeypatch, capsys):
    command = types.SimpleNamespace(
        check=lambda options: None,
        resumes=lambda options: False,
        run=lambda options, checked: print("gr\u00fcn"),
    )
    options = argparse.Namespace(command=command)
    parser = types.SimpleNamespace(parse_args=lambda arguments: options)
    monkeypatch.setattr(cli, "build_parser", lambda: parser)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert cli.main([]) == 2
    said = capsys.readouterr().err
    assert "The standard output is in 'ascii', which has no '\\xfc'. Set PYTHONIO" in said
