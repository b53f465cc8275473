"""The command: what it prints, what it hands on, and how it says no."""

import io
import json
import os
import re
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from keras_addnorm import __version__, cli
from keras_addnorm.decoding import Beam
from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.setting_fields import list_settings
from keras_addnorm.serving.export import _strategies

_CTRANSLATE2 = ("--format", "ctranslate2")
COMMANDS = ("demo", "train", "evaluate", "translate", "export")


@pytest.fixture(autouse=True)
def _prepared_data_elsewhere(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path_factory.mktemp("tfds")))


def _main(capsys, *arguments):
    status = cli.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS)])
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
    words = " ".join(capsys.readouterr().out.split()).replace("- ", "-").split("settings: ")[1]
    for one in list_settings(RunConfig):
        text = re.search(rf"--{one.flag}[ ,].*?default: [^)]*", words)[0]
        limits = one.limits
        if limits is not None:
            shown = [limits.minimum, limits.maximum, limits.above, limits.off, *limits.choices]
            shown += ["finite" if limits.below == float("inf") else limits.below]
            for part in (part for part in shown if part is not None):
                assert re.search(rf"(?<![\w.]){re.escape(str(part))}(?![\w.])", text), (text, part)
        if one.default not in (None, "", ()):
            assert text.endswith(f"default: {one.default}"), text
    with pytest.raises(ValueError, match="Expected one of") as caught:
        Seq2SeqConfig.preset("none", source_vocabulary_size=5, target_vocabulary_size=5)
    presets = str(caught.value).split("one of ")[1].split(".")[0].split(", ")
    text = re.search(r"--preset .*?\)", words)[0]
    assert "tiny" in presets and all(preset in text for preset in presets)


def test_the_search_is_the_same_in_exports_and_runs():
    """One place of recommended values; a beam of one's own has no length penalty."""
    search = RunConfig().evaluation
    exported = _strategies(None, None, None)["translate"]
    assert exported == Beam(search.num_beams, search.length_penalty)
    assert Beam().num_beams == search.num_beams


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


def test_flags_become_settings(monkeypatch, tmp_path):
    config = _resolved(
        monkeypatch,
        *("--run-dir", tmp_path, "--data", "corpus", "--source", "fr", "--target", "es"),
        *("--preset", "small", "--tokenizer", "unigram", "--no-joint", "--bucket-lengths", 8, 16),
        *("--no-jit-compile", "--clipnorm", 1, "--max-length", 31, "--peak-learning-rate", "1e-3"),
        *("--set", "model.hidden_dim=64", "--set", "model.scheme=deep_norm", "--set", "data=last"),
    )
    assert config == RunConfig.from_dict(
        {
            "data": "last",
            "source": "fr",
            "target": "es",
            "tokenizer": {"kind": "unigram", "joint": False},
            "model": {"preset": "small", "hidden_dim": 64, "scheme": "deep_norm"},
            "training": {
                "bucket_lengths": [8, 16],
                "jit_compile": False,
                "clipnorm": 1.0,
                "peak_learning_rate": 0.001,
            },
            "evaluation": {"max_length": 31},
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
        (["train", "--run-dir", "DIR", "--epochs", "0"], "training.epochs must be at least 1"),
        (["train", "--run-dir", "DIR", "--config", "none.toml"], "no configuration file"),
        (["train", "--run-dir", "DIR", "--data", "./nowhere"], "nowhere"),
        (["train", "--run-dir", "DIR", "--resume"], "is not a run directory"),
        (["evaluate", "--run-dir", "DIR"], "is not a run directory"),
        (["translate", "--run-dir", "DIR", "text"], "is not a run directory"),
        (["translate", "--model", "DIR", "text"], "There is no exported model"),
        (["translate", "--model", "DIR", "--num-beams", "2", "a"], "evaluation.num_beams cannot"),
        (["export", "--run-dir", "DIR", "DIR"], "is not a run directory"),
        (
            ["export", "--run-dir", "DIR", "d", "--format", "ctranslate2", "--version", "1"],
            "search",
        ),
        (
            ["export", "--run-dir", "DIR", "d", "--format", "ctranslate2", "--num-beams", "1"],
            "when",
        ),
        (
            ["export", "--run-dir", "DIR", "d", "--format", "onnx", "--num-beams", "1"],
            "Expected evaluation.max_length",
        ),
    ],
)
def test_a_users_error_is_one_message_and_status_2(capsys, tmp_path, arguments, message):
    status, out, err = _main(capsys, *(str(tmp_path) if a == "DIR" else a for a in arguments))
    assert status == 2
    assert err.startswith("keras-addnorm: ")
    assert message in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("name", ["onnx", "litert"])
def test_other_runtimes_get_the_model_and_its_limit(capsys, monkeypatch, tmp_path, name):
    def export(*arguments, **choices):
        return arguments, choices

    config = RunConfig.from_dict({"evaluation": {"max_length": 17}})
    run = types.SimpleNamespace(model="model", tokenizers="tokenizers", config=config)
    monkeypatch.setattr(cli, "_load_run", lambda _: run)
    monkeypatch.setattr(f"keras_addnorm.interop.export_{name}", export)
    status, out, _ = _main(capsys, "export", "--run-dir", tmp_path, "d", "--format", name)
    expected = ("model", Path("d")), {"tokenizer": "tokenizers", "max_length": 17}
    assert (status, out) == (0, f"{expected}\n")


@pytest.fixture
def shouting(monkeypatch):
    """An export that puts texts into capitals; lists how many it got at a time."""
    portions = []

    def translator(texts):
        portions.append(len(texts))
        return [(text.upper(), -1.0) for text in texts]

    monkeypatch.setattr("keras_addnorm.runs.translate.load_translator", lambda _: translator)
    return portions


def test_standard_input_has_to_be_text(capsys, monkeypatch, shouting):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    status, _, err = _main(capsys, "translate", "--model", "some")
    assert (status, err.startswith("keras-addnorm: The standard input is not utf-8")) == (2, True)


def test_f5_a_byte_order_mark_of_standard_input_is_no_text(capsys, monkeypatch, shouting):
    content = b"\xef\xbb\xbfa dog\nb\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    assert _main(capsys, "translate", "--model", "some")[:2] == (0, "A DOG\nB\n")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_f5_standard_input_in_utf16_says_how_to_convert_it(capsys, monkeypatch, shouting, encoding):
    content = "\ufeffa dog\n".encode(encoding)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    status, _, err = _main(capsys, "translate", "--model", "some")
    assert (status, "looks like UTF-16: convert it with iconv" in err) == (2, True)


def test_a_long_file_is_translated_in_portions(capsys, monkeypatch, shouting):
    """What is translated is printed before the next lines are read."""

    def lines():
        yield from (f"line {index}\n" for index in range(1500))
        assert capsys.readouterr().out.splitlines() == [f"LINE {i}" for i in range(1024)]
        yield "the end"

    monkeypatch.setattr("sys.stdin", lines())
    status, out, _ = _main(capsys, "translate", "--model", "some")
    assert (status, shouting) == (0, [1024, 477])
    assert out.splitlines() == [*(f"LINE {index}" for index in range(1024, 1500)), "THE END"]


def test_a_keyboard_interrupt_is_no_error(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_addnorm.runs.demo.demo", interrupted)
    status, _, err = _main(capsys, "demo")
    assert status == 130
    assert "goes on at the last checkpoint" in err


def _print_in_a_command(tmp_path, show, **environment):
    """Runs a command in its own process that does something else than its work."""
    code = (
        "import gc, os, resource, sys\n"
        "from keras_addnorm import cli\n"
        "add = lambda commands, name: cli._command(commands, name, '', '', show)\n"
        "cli._COMMANDS['demo'] = add\n"
        f"def show(_):\n{textwrap.indent(show, '    ')}\n"
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
    assert json.loads((run / "scores.json").read_text())["test[:5]"]["sentences"] == 5

    status, from_run, _ = _main(capsys, "translate", "--run-dir", run, "Emma was born.", "")
    assert status == 0
    assert len(from_run.splitlines()) == 2
    monkeypatch.setattr("sys.stdin", iter(["Emma was born.\n", "\n"]))
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
    assert (status, "it exists" in err) == (2, True)
