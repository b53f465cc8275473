"""`keras-addnorm inspect`: a batch of the run's own data, through its model, into files."""

import json
from pathlib import Path

import numpy as np
import pytest

from keras_addnorm import cli
from keras_addnorm.diagnostics import Report, ResidualLog, ResidualRow
from keras_addnorm.diagnostics import inspect as inspect_model
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.inspect import inspect
from keras_addnorm.runs.text_data import load_or_train_tokenizers, load_pairs
from keras_addnorm.runs.trained_run import load_run, model_config, save_model_config
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

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
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(folder / "tfds"))
        tokenizers = load_or_train_tokenizers(config, run, load_pairs(config, "train"))
        run.write_config(config)
        model = Seq2SeqTransformer(model_config(config, tokenizers))
        save_model_config(model.config, run)
        model.save_weights(run.best_weights)
        yield run


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
    expected = inspect_model(
        run.model,
        ({"source": source, "target": target}, labels),
        MaskedSparseCategoricalCrossentropy(0.3),
    )
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
    assert '"step": 14' in text
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
