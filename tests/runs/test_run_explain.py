"""`keras-addnorm explain`: runs into a page."""

import json
import re

import pytest

from keras_addnorm import cli
from keras_addnorm.diagnostics import ResidualLog, ResidualRow
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.text_data import load_or_train_tokenizers, load_pairs
from keras_addnorm.runs.trained_run import model_config, save_model_config

PAIRS = [("a red house", "ein rotes Haus"), ("", "leer"), ("two houses " * 9, "zwei Häuser " * 9)]
SIZES = {
    **{"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "max_length": 23},
    **{"hidden_dim": 4, "intermediate_dim": 5},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs with fresh weights: two schemes, one of them twice, and one that is refused."""
    folder = tmp_path_factory.mktemp("explain")
    for split in ("train", "val"):
        for index, language in enumerate(("en", "de")):
            text = "".join(f"{pair[index]}\n" for pair in PAIRS)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    found = {}
    for name, scheme in {"a": "pre_ln", "b": "pre_ln", "c": "no_norm", "d": "mhc"}.items():
        config = RunConfig.from_dict(
            {
                **{"data": str(folder), "source": "en", "target": "de"},
                "tokenizer": {"vocabulary_size": 32},
                "model": {**SIZES, "scheme": scheme},
            }
        )
        run = RunDirectory(folder / name)
        tokenizers = load_or_train_tokenizers(config, run, load_pairs(config, "train"))
        run.write_config(config)
        model = Seq2SeqTransformer(model_config(config, tokenizers))
        save_model_config(model.config, run)
        model.save_weights(run.best_weights)
        found[name] = run
    found["a"].write_log([{"epoch": 0, "val_loss": 3.0}, {"epoch": 1, "val_loss": 2.5}])
    row = ResidualRow(5, "encoder/0/feed_forward", 1.0, 1.0, 1.0, 0.5, 0.5, 0.1)
    ResidualLog(found["a"].residuals).append([row])
    return found


def _main(capsys, *arguments):
    status = cli.main(["explain", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def _data(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def test_runs_become_a_page(capsys, runs, tmp_path):
    page = tmp_path / "new" / "page.html"
    paths = [runs[name].path for name in "abc"]
    status, out, _ = _main(capsys, *paths, "--html", page)
    assert (status, out) == (0, f"Written: {page}\n")
    data = _data(page)
    assert [model["name"] for model in data["models"]] == ["pre_ln (a)", "pre_ln (b)", "no_norm"]
    assert data["sentences"] == [["a red house", "ein rotes Haus"]]
    assert data["models"][0]["validation_loss"] == 2.5
    assert data["models"][0]["log"]["steps"] == [5]
    assert data["models"][1]["log"] is data["models"][1]["validation_loss"] is None
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


def test_sentences_of_ones_own(capsys, runs, tmp_path):
    page = tmp_path / "page.html"
    sentences = ["--sentence", "a house", "--sentence", "red"]
    assert _main(capsys, runs["c"].path, "--html", page, *sentences)[0] == 0
    assert _data(page)["sentences"] == [["a house", ""], ["red", ""]]


def test_what_is_refused_leaves_no_file(capsys, runs, tmp_path):
    page = tmp_path / "page.html"
    status, _, err = _main(capsys, runs["a"].path, runs["d"].path, "--html", page)
    assert status == 2
    assert "mhc: The page cannot run this model: it does not know the scheme 'mhc'" in err
    status, _, err = _main(capsys, runs["a"].path, tmp_path, "--html", page)
    assert (status, "is not a run directory" in err) == (2, True)
    assert not page.exists()


def test_without_its_data_a_run_needs_a_sentence(capsys, runs, tmp_path):
    moved = runs["c"].read_config().replace({"data": str(tmp_path / "gone")})
    before = runs["c"].config.read_text(encoding="utf-8")
    runs["c"].write_config(moved)
    try:
        status, _, err = _main(capsys, runs["c"].path, "--html", tmp_path / "page.html")
    finally:
        runs["c"].config.write_text(before, encoding="utf-8")
    assert status == 2
    assert "--sentence TEXT" in err and "gone" in err
