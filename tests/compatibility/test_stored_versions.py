"""What earlier versions wrote is loaded, and gives the scores and translations that it gave then.

`make.py` made the folders, one a version, when the versions were released.
"""

import dataclasses
import json
import shutil
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_addnorm.data import TokenizerPair
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.evaluate import evaluate
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.runs.translate import translate_texts
from keras_addnorm.serving import load_translator

VERSIONS = sorted(path for path in Path(__file__).parent.glob("[0-9]*") if path.is_dir())


def test_there_is_a_stored_version():
    assert VERSIONS


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda path: path.name)
def stored(request):
    return request.param


@pytest.fixture(scope="module")
def expected(stored):
    return json.loads((stored / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def copied(stored, tmp_path, monkeypatch):
    """A copy of the run and its corpus, from beside which its paths are right."""
    for name in ("run", "corpus"):
        shutil.copytree(stored / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return RunDirectory("run")


def assert_same(found, expected):
    """Texts are equal, and scores but for the rounding of another machine."""
    assert [text for text, _ in found] == [text for text, _ in expected]
    scores = [score for _, score in expected]
    np.testing.assert_allclose([score for _, score in found], scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("file", ["model.keras", "model.weights.h5"])
def test_a_model(stored, expected, file):
    if file.endswith(".keras"):
        model = keras.models.load_model(stored / file)
        assert isinstance(model, Seq2SeqTransformer)
    else:
        config = Seq2SeqConfig.from_json((stored / "model.json").read_text(encoding="utf-8"))
        model = Seq2SeqTransformer(config)
        model.load_weights(stored / file)
    then = expected["model"]
    source, target = np.array(then["source"]), np.array(then["target"])
    logits = keras.ops.convert_to_numpy(model({"source": source, "target": target}))
    np.testing.assert_allclose(logits, then["logits"], rtol=1e-4, atol=1e-5)
    ids, scores = model.generate(source, num_beams=3, jit_compile=False)
    np.testing.assert_array_equal(ids, then["beam"][0])
    np.testing.assert_allclose(scores, then["beam"][1], rtol=1e-4)
    found = model.score(source, target[:, 1:], jit_compile=False)
    np.testing.assert_allclose(found.log_probabilities, then["log_probabilities"], rtol=1e-4)


def test_a_model_of_single_layers(stored, tmp_path):
    """In 0.1.0 nothing marked an Add & Norm's reads, and an output could come without one."""
    own = json.loads((stored / "own_model.json").read_text(encoding="utf-8"))
    model = keras.models.model_from_json(json.dumps(own["model"]))
    model.set_weights([np.array(weight) for weight in own["weights"]])
    inputs = np.array(own["inputs"])
    found = keras.ops.convert_to_numpy(model(inputs))
    np.testing.assert_allclose(found, own["outputs"], rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "again.keras")
    again = keras.models.load_model(tmp_path / "again.keras")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(again(inputs)), found)


def test_tokenizers(stored, expected):
    tokenizers = TokenizerPair.load(stored / "run" / "tokenizer")
    for side, ids in expected["run"]["ids"].items():
        tokenizer = getattr(tokenizers, side)
        assert tokenizer.encode_batch(expected["texts"]) == ids
        assert tokenizer.decode_batch(ids)[0] == expected["texts"][0]


def test_a_run_translates(copied, expected):
    then = expected["run"]
    assert copied.read_config() == RunConfig.from_dict(copied.read_config().to_dict())
    assert len(copied.read_log()) == then["epochs"]
    assert_same(translate_texts(load_run(copied), expected["texts"]), then["translations"])


@pytest.mark.slow
def test_u1_a_run_translates_every_sentence_of_a_text(copied):
    sentences = ["red green blue.", "Small old!", "New round, big red?"]
    paragraph = " ".join(20 * sentences)
    text = f"{paragraph}\n\n{sentences[0]}"
    run = load_run(copied)
    (whole, _), *alone = translate_texts(run, [text, *sentences])
    first, *_ = found = [translation for translation, _ in alone]
    assert whole == " ".join(20 * found) + f"\n\n{first}"
    unsplit = dataclasses.replace(run, config=run.config.replace({"evaluation.splitting": "none"}))
    ((cut, _),) = translate_texts(unsplit, [text])
    assert len(cut.split()) < len(paragraph.split()) / 2


@pytest.mark.slow
def test_a_run_is_evaluated(copied, expected):
    """With the rule that ended a beam then; its run names none, and gets today's default."""
    run = load_run(copied)
    as_then = run.config.replace({"evaluation.beam_stopping": "enough_finished"})
    found = evaluate(dataclasses.replace(run, config=as_then), "test")
    assert found.cased.bleu == pytest.approx(expected["run"]["evaluation"], abs=1e-6)


@pytest.mark.slow
def test_a_run_is_trained_further(copied, expected):
    """From its last checkpoint: its optimiser, its place in the data and its log."""
    said = []
    config = copied.read_config().replace({"training.epochs": expected["run"]["epochs"] + 1})
    train(config, copied, say=said.append, verbose=0)
    assert any(f"Going on after epoch {expected['run']['epochs']} of" in line for line in said), (
        said
    )
    log = copied.read_log()
    assert [row["epoch"] for row in log] == list(range(expected["run"]["epochs"] + 1))
    # An optimiser that began anew, or weights that did, would throw the loss back.
    assert log[-1]["loss"] < 1.2 * log[-2]["loss"]


def test_an_export_translates(stored, expected, tmp_path):
    with tarfile.open(stored / "export.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = load_translator(tmp_path / "small")(expected["texts"])
    assert_same([(each.text, each.score) for each in found], expected["export"]["translations"])


def test_no_file_tells_of_the_machine_that_made_it(stored):
    """Neither its folders nor its users: the data go with the tests to everyone."""
    folders = {str(Path.home()).encode(), str(Path(__file__).parents[2]).encode()} - {b"/root"}
    for path in stored.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            if path.name.endswith(".gz"):
                with tarfile.open(path) as archive:
                    files = [member for member in archive.getmembers() if member.isfile()]
                    content = b"".join(archive.extractfile(member).read() for member in files)
            assert not any(folder in content for folder in folders), path
