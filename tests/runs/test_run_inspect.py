"""`keras-addnorm inspect`: a batch of the run's own data, through its model, into files."""

import importlib
import inspect as inspect_module
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from python_words import PYTHON_WORDS

from keras_addnorm import cli
from keras_addnorm.basics.errors import UserError
from keras_addnorm.decoding import Lexicon
from keras_addnorm.diagnostics import Report, ResidualLog, ResidualRow, effective_depth
from keras_addnorm.diagnostics import inspect as inspect_model
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs import RunConfig, RunDirectory, weight_files
from keras_addnorm.runs.inspect import inspect
from keras_addnorm.runs.prune import save as save_pruned
from keras_addnorm.runs.text_data import load_or_train_tokenizers, load_pairs
from keras_addnorm.runs.trained_run import load_run, model_config, save_model_config
from keras_addnorm.serving.versions import choose_version, existing_versions
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy, checkpoint_file
from keras_addnorm.training.resume import Checkpoints, TrainingPosition

PAIRS = [
    ("a red house", "ein rotes Haus"),
    ("", "leer"),
    ("two big green houses", "zwei große grüne Häuser"),
    ("the blue house", "das blaue Haus"),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A run with fresh weights: nothing here depends on training."""
    folder = tmp_path_factory.mktemp("inspect")
    for split in ("train", "val", "test"):
        for index, language in enumerate(("en", "de")):
            text = "".join(f"{pair[index]}\n" for pair in PAIRS)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    config = RunConfig.from_dict(
        {
            "data": str(folder),
            "source": "en",
            "target": "de",
            "tokenizer": {"vocabulary_size": 37},
            "model": {
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
                "hidden_dim": 10,
                "intermediate_dim": 14,
                "num_heads": 2,
                "max_length": 23,
            },
            "training": {"label_smoothing": 0.3},
        }
    )
    run = RunDirectory(folder / "run")
    tokenizers = load_or_train_tokenizers(config, run, load_pairs(config, "train"))
    run.write_config(config)
    model = Seq2SeqTransformer(model_config(config, tokenizers))
    save_model_config(model.config, run)
    model.save_weights(run.best_weights)
    run.checkpoints.mkdir()  # as of a training that was killed before its first one
    return run


def _main(capsys, *arguments):
    status = cli.main(["inspect", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_batch_is_the_runs_own(directory):
    run = load_run(directory)
    report = inspect(run, "val", batch_size=2)
    rows = [tuple(map(run.tokenizers.source.encode, pair)) for pair in (PAIRS[0], PAIRS[2])]
    sizes = [max(len(row[side]) for row in rows) + 1 for side in (0, 1)]
    source, target, labels = (np.zeros((2, sizes[i]), int) for i in (0, 1, 1))
    for index, (said, meant) in enumerate(rows):
        source[index, : len(said) + 1] = [*said, 2]
        target[index, : len(meant) + 1] = [1, *meant]
        labels[index, : len(meant) + 1] = [*meant, 2]
    batch = {"source": source, "target": target}, labels
    loss = MaskedSparseCategoricalCrossentropy(0.3)
    depth = effective_depth(run.model, batch, loss)
    expected = inspect_model(run.model, batch, loss, depth=depth)
    assert report.loss == pytest.approx(expected.loss, rel=1e-6)
    assert report.sublayers == expected.sublayers
    cross = report.attention_maps[-1]
    assert cross.name == "decoder/0/cross_attention"
    assert "".join(cross.queries) == "(start) ein rotes Haus"
    assert "".join(cross.keys) == " a red house(end)"


def test_every_file(capsys, directory, tmp_path):
    rows = [
        ResidualRow(step, "encoder/0/feed_forward", 1.0, 1.0, 1.0, 0.5, 0.5, 0.1)
        for step in (7, 14)
    ]
    ResidualLog(directory.residuals).append(rows)
    page, data = tmp_path / "new" / "report.html", tmp_path / "report.json"
    status, out, _ = _main(
        capsys, directory.path, "--html", page, "--json", data, "--sentence", "the red house"
    )
    assert status == 0
    report = Report.from_dict(json.loads(data.read_text(encoding="utf-8")))
    assert str(report) in out
    assert out.splitlines()[-2:] == [f"Written: {page}", f"Written: {data}"]
    assert "".join(report.attention_maps[0].keys) == " the red house(end)"
    assert report.attention_maps[-1].queries[0] == "(start)"
    text = page.read_text(encoding="utf-8")
    assert f"<h1>Add &amp; Norm in {directory.path.name}</h1>" in text
    assert '"step":14' in text
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "nonsense"], "nonsense"),
        (["--batch-size", "0"], "A batch needs a sentence pair"),
        (["--sentence", "  "], "Expected a sentence"),
    ],
)
def test_what_a_user_can_get_wrong(capsys, directory, arguments, message):
    status, out, err = _main(capsys, directory.path, *arguments)
    assert status == 2
    assert message in err
    assert "Traceback" not in out + err


def test_not_a_run(capsys, tmp_path):
    status, _, err = _main(capsys, tmp_path)
    assert (status, "is not a run directory" in err) == (2, True)


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["inspect", "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert "\n  keras-addnorm inspect runs/mine --html report.html" in text
    assert Path("docs/diagnostics.md").as_posix() in text


@pytest.fixture
def echoed(monkeypatch):
    """Translations without a search: the reference, word by word less with each pruned sublayer."""
    meant = dict(PAIRS)

    def translate(model, tokenizers, texts, **_):
        missing = len(model.config.pruned_sublayers)
        return SimpleNamespace(texts=[" ".join(meant[t].split()[missing:]) for t in texts])

    monkeypatch.setattr("keras_addnorm.runs.prune.translate", translate)


@pytest.mark.slow
def test_the_command_prunes_and_the_rest_is_a_run(directory, capsys, tmp_path, echoed):
    names = ["encoder/0/self_attention", "decoder/0/feed_forward"]
    path = str(tmp_path / "pruned")
    arguments = ["prune", "--run-dir", str(directory.path), *names, "--pairs", "3", "--save", path]
    assert cli.main(arguments) == 0
    heads, *rows, written = capsys.readouterr().out.splitlines()
    scores = ["loss", "cost", "perplexity", "cost", "bleu", "cost"]
    assert heads.split() == ["without", "weights", *scores]
    without = [row.split("  ")[0] for row in rows]
    assert without == ["(nothing)", *names, "all 2"]
    bleu = [float(row.split()[-2]) for row in rows]
    assert bleu[0] == 100 > bleu[1] == bleu[2] >= bleu[3]
    assert written == f"Written: {path}"

    whole, pruned = load_run(directory), load_run(path)
    assert set(pruned.model.config.pruned_sublayers) == set(names)
    assert pruned.config.replace({"model": {}}) == whole.config.replace({"model": {}})
    assert pruned.tokenizers == whole.tokenizers
    assert pruned.model.count_params() < whole.model.count_params()
    kept = {weight.path: weight for weight in whole.model.weights}
    for weight in pruned.model.weights:
        np.testing.assert_array_equal(weight, kept[weight.path])


def test_what_is_behind_a_link_does_not_go_into_a_pruned_run(directory, tmp_path):
    (tmp_path / "secret").write_text("mine")
    run = load_run(shutil.copytree(directory.path, tmp_path / "run"))
    run.directory.lexicon.symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match=r"lexicon\.npz, which is none"):
        save_pruned(run.model, run, tmp_path / "pruned")
    run.directory.lexicon.unlink()
    sizes = {"source_vocabulary_size": 9, "target_vocabulary_size": 7}
    lexicon = Lexicon.estimate([([3, 4], [5, 6])], **sizes)
    lexicon.save(run.directory.lexicon)
    save_pruned(run.model, run, tmp_path / "pruned")
    found = Lexicon.load(tmp_path / "pruned" / "lexicon.npz")
    np.testing.assert_array_equal(found.candidates, lexicon.candidates)
    np.testing.assert_array_equal(found.probabilities, lexicon.probabilities)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pruned", "run", "secret"]


def test_without_names_only_what_is_nearly_the_identity_is_pruned(directory, capsys):
    assert cli.main(["prune", "--run-dir", str(directory.path), "--pairs", "3"]) == 2
    err = capsys.readouterr().err
    assert "No sublayer of this model is nearly the identity" in err
    assert "coder/0/" in err
    arguments = ["prune", "--run-dir", str(directory.path), "encoder/0/self_atention"]
    assert cli.main(arguments) == 2
    assert "Did you mean 'encoder/0/self_attention'" in capsys.readouterr().err


def test_a_string_is_a_folder_wherever_one_is_taken(directory, tmp_path):
    run = load_run(str(directory.path))
    assert run.directory.path == directory.path
    weight_files.save_weights(run.model, str(tmp_path / "a.weights.h5"))
    weight_files.save_average([str(tmp_path / "a.weights.h5")], str(tmp_path / "b.weights.h5"))
    assert {path.name for path in tmp_path.iterdir()} == {"a.weights.h5", "b.weights.h5"}
    model = Seq2SeqTransformer(run.model.config)
    model.compile("adam", MaskedSparseCategoricalCrossentropy())
    folder = str(tmp_path / "checkpoints")
    Checkpoints(folder, TrainingPosition(mock.Mock(), 1))
    checkpoint_file.save_checkpoint(
        model, str(tmp_path / "epoch-0002.weights.h5"), checkpoint_file.TrainingState(2)
    )
    path, state = checkpoint_file.newest_checkpoint(str(tmp_path), print)
    assert (path.name, state.epoch) == ("epoch-0002.weights.h5", 2)
    assert checkpoint_file.read_checkpoint(str(path)) == state
    assert existing_versions(str(tmp_path)) == []
    assert choose_version(str(tmp_path), None) == 1


def test_no_public_function_takes_a_path_only():
    """What is annotated `Path` alone would fail with a string, or seem to."""
    for name in ("train", "evaluate", "translate", "export", "inspect", "prune", "demo", "serve"):
        module = importlib.import_module(f"keras_addnorm.runs.{name}")
        for function in vars(module).values():
            if inspect_module.isfunction(function) and function.__module__ == module.__name__:
                for parameter in inspect_module.signature(function).parameters.values():
                    is_path = "Path" in str(parameter.annotation)
                    is_public = not function.__name__.startswith("_")
                    assert not (is_public and is_path) or "str" in parameter.annotation, function


_TRAIN = ("train", "--run-dir", "NEW", "--data", "demo")
_MISTAKES = [
    (("translate", "--run-dir", "RUN", "--shortlist", "400", "a"), "Expected a size from 4 to"),
    (("translate", "--run-dir", "RUN", "--min-length", "40", "a"), "minimum length"),
    (("evaluate", "--run-dir", "RUN", "--split", "testing"), "has no split 'testing'"),
    (("inspect", "RUN", "--split", "testing"), "has no split 'testing'"),
    (("inspect", "RUN", "--batch-size", "0"), "--batch-size 0"),
    (("inspect", "RUN", "--sentence", " "), "There is nothing to draw"),
    (("prune", "--run-dir", "RUN", "encoder/9/x"), "no sublayer 'encoder/9/x'"),
    (("export", "--run-dir", "RUN", "VERSIONS", "--version", "1"), "Name no version, for the"),
    (("export", "--run-dir", "RUN", "VERSIONS", "--version", "0"), "no --version for the next"),
    (("export", "--run-dir", "RUN", "FILE"), "it is a file"),
    (
        ("export", "--run-dir", "RUN", "VERSIONS", "--format", "onnx"),
        "exists. Expected the name of a new",
    ),
    (("export", "--run-dir", "RUN", "VERSIONS", "--shortlist", "999"), "Expected a size from"),
    (("translate", "--model", "VERSIONS", "a"), "no translation model"),
    (("translate", "--model", "EMPTY", "a"), "There is no exported model"),
    (("serve", "EMPTY"), "There is no exported model"),
    (("serve", "VERSIONS", "--port", "70000"), "--port must be at least 0 and at most"),
    (("serve", "VERSIONS", "--workers", "-2"), "--workers must be at least 1"),
    ((*_TRAIN, "--set", "model.scheme=foo"), "Unknown residual scheme 'foo'"),
    ((*_TRAIN, "--set", "model.scheme={name='rezero', foo=1}"), "no such field"),
    ((*_TRAIN, "--set", "model.positions=foo"), "Unknown kind of positions 'foo'"),
    ((*_TRAIN, "--set", "model.attention={foo=1}"), "Received: foo"),
    ((*_TRAIN, "--set", "model.activation=foo"), "no such model.activation"),
    ((*_TRAIN, "--set", "model.max_length='x'"), "model.max_length has to be a positive"),
    ((*_TRAIN, "--set", "model.drop_path=2"), "model.drop_path is a share"),
    ((*_TRAIN, "--set", "training=3"), "must be a table"),
    ((*_TRAIN, "--set", "x"), "--set takes key=value"),
    ((*_TRAIN, "--hidden-dim", "10", "--num-heads", "3"), "Use --num-heads 2 or 5"),
    ((*_TRAIN, "--subword-sampling", "2"), "Expected --subword-sampling below 1"),
    ((*_TRAIN, "--ema", "0.9", "--average-last", "3"), "Received: --ema 0.9, --average-last 3."),
    ((*_TRAIN, "--distribution", "model"), "KERAS_BACKEND=jax"),
    ((*_TRAIN, "--start-from", "EMPTY"), "is not a run directory"),
    (("train", "--run-dir", "RUN", "--hidden-dim", "12"), "--hidden-dim = 10. Received: 12."),
    (("train", "--run-dir", "FILE"), "is a file. Expected a folder for the run"),
    (("train", "--run-dir", "NEW", "--config", "EMPTY"), "is a folder. Expected a TOML file"),
    (("train", "--run-dir", "NEW", "--data", "EMPTY"), "no parallel text"),
    (("train", "--run-dir", "NEW", "--data", "EMPTY/x"), "There is no folder"),
]


def _name(each):
    return " ".join(each)[:60] if isinstance(each, tuple) else each[:20]


@pytest.mark.parametrize(("arguments", "words"), _MISTAKES, ids=_name)
def test_messages_of_commands_have_no_words_of_python(
    directory, capsys, tmp_path, arguments, words
):
    (tmp_path / "versions" / "1").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    names = {"NEW": "new", "VERSIONS": "versions", "EMPTY": "empty", "FILE": "file"}
    places = {"RUN": str(directory.path), "EMPTY/x": str(tmp_path / "empty" / "x")}
    places |= {name: str(tmp_path / path) for name, path in names.items()}
    assert cli.main([places.get(argument, argument) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert not PYTHON_WORDS.findall(said.replace("model.hidden_dim=64", ""))
    assert "Errno" not in said
    assert not (tmp_path / "new" / "config.toml").exists()
