"""A student that Marian trained is evaluated, inspected, fine-tuned, served and handed on."""

import json
import shutil
from pathlib import Path

import marian_formula
import numpy as np
import pytest

from keras_addnorm import cli
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.interop import load_pretrained, make_random_folder
from keras_addnorm.interop.tensor_files import (
    EightBitMatrix,
    StoredEightBitMatrix,
    read_marian_bin,
    read_npz,
    write_marian_bin,
)
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.evaluate import evaluate
from keras_addnorm.runs.export import export, export_for_engine
from keras_addnorm.runs.inspect import inspect, write
from keras_addnorm.runs.pretrained_run import import_pretrained, summary
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.runs.translate import translate_texts
from keras_addnorm.serving import load_translator

STUDENTS = Path(__file__).parent / "students"
SAID = json.loads((STUDENTS / "marian.json").read_text(encoding="utf-8"))
SETTINGS = "special:model.yml"
LINES = SAID["sources"][70:75]
SILENT = {"say": lambda line: None, "verbose": 0}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Sentences with what Marian makes of them."""
    folder = tmp_path_factory.mktemp("corpus")
    sides = {"en": SAID["sources"], "de": SAID["ssru"]["outputs"]}
    for name, rows in {"train": (0, 60), "validation": (60, 67), "test": (67, 80)}.items():
        for language, lines in sides.items():
            text = "".join(f"{line.strip()}\n" for line in lines[slice(*rows)])
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory, corpus):
    """A student as a run."""
    folder = tmp_path_factory.mktemp("runs")
    student = folder / "files"
    student.mkdir()
    for name in ("ssru.npz", "vocab.spm"):
        shutil.copy(STUDENTS / name, student)
    data = {
        **{"data": str(corpus), "source": "en", "target": "de"},
        **{"evaluation.num_beams": 1, "evaluation.max_length": 70},
    }
    loaded = import_pretrained(str(student), folder / "student", data)
    return folder, loaded


def test_a_run_of_a_student_says_how_it_is_fine_tuned(runs):
    folder, loaded = runs
    said = summary("student", loaded, folder / "student")
    assert "without label smoothing and dropout" in said
    config = RunDirectory(folder / "student").read_config()
    assert config.training.label_smoothing == config.model.overrides["dropout"] == 0.0


@pytest.mark.slow
def test_evaluate_finds_what_marian_said(runs):
    folder, _ = runs
    found = evaluate(load_run(folder / "student"), "test")
    assert found.cased.bleu == pytest.approx(100)
    assert found.exact_match == 100
    assert RunDirectory(folder / "student").read_scores()["test"]["exact_match"] == 100


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "ending"), [("average_attention", "npz"), ("ssru", "bin")])
def test_the_command_imports_either_kind_from_either_file(tmp_path, capsys, kind, ending):
    """And makes of them a run that says what Marian said."""
    files, path = tmp_path / "files", tmp_path / "run"
    files.mkdir()
    shutil.copy(STUDENTS / "vocab.spm", files)
    if ending == "npz":
        shutil.copy(STUDENTS / f"{kind}.npz", files)
    else:
        tensors = {name: each.read() for name, each in read_npz(STUDENTS / f"{kind}.npz").items()}
        tensors[SETTINGS] = tensors[SETTINGS].tobytes()
        write_marian_bin(files / "model.bin", tensors)
    arguments = ["--source", "en", "--target", "de", "--num-beams", "1", "--max-length", "70"]
    assert cli.main(["import", str(files), str(path), *arguments]) == 0
    assert str(path) in capsys.readouterr().out
    run = load_run(path)
    assert kind in str(run.model.config.self_attention)
    expected = [line.strip() for line in SAID[kind]["outputs"][70:75]]
    assert [text.strip() for text, _ in translate_texts(run, LINES)] == expected


@pytest.mark.slow
def test_inspect_has_no_maps_of_a_cell_and_says_so(runs):
    """In Python and on the page: the other attentions have theirs."""
    folder, _ = runs
    run = load_run(folder / "student")
    report = inspect(run, "test", batch_size=7)
    cells = [f"decoder/{layer}/self_attention" for layer in range(2)]
    assert f"No attention weights in {', '.join(cells)}." in str(report)
    assert [item.name for item in report.sublayers if item.kind != "feed_forward"][1::2] == cells
    for name in cells:
        assert report[name].attention is None
        assert report[name].branch_mean > 0 and report[name].skip_cost > 0
    assert {one.name for one in report.attention_maps} == {
        "encoder/0/self_attention",
        *(f"decoder/{layer}/cross_attention" for layer in range(2)),
    }
    write(report, run, html=folder / "report.html", json_file=folder / "report.json")
    assert f"No attention weights in {', '.join(cells)}." in (folder / "report.html").read_text()
    assert json.loads((folder / "report.json").read_text())["loss"] == report.loss


@pytest.fixture(scope="module")
def fine_tuned(runs, corpus):
    """The student after an epoch in which two small matrices beside each kernel have learned."""
    folder, _ = runs
    start = RunDirectory(folder / "student").read_config()
    changes = {
        "training.start_from": str(folder / "student"),
        "training.lora_rank": 2,
        "training.epochs": 1,
        "training.peak_learning_rate": 0.01,
        "training.tokens_per_batch": 512,
        "training.jit_compile": False,
        "training.ema": 0.0,
    }
    return train(start.replace(changes), folder / "tuned", **SILENT)


@pytest.mark.slow
def test_a_fine_tuned_student_is_exported_from_text_to_text(runs, fine_tuned):
    folder, _ = runs
    before = load_run(folder / "student").model
    moved = [
        np.abs(to_numpy(weight) - to_numpy(other)).max()
        for weight, other in zip(fine_tuned.model.weights, before.weights, strict=True)
        if weight.name == "kernel"
    ]
    assert min(moved) > 0
    expected = [text for text, _ in translate_texts(fine_tuned, LINES)]
    saved = export(fine_tuned, folder / "saved")
    assert [one.text for one in load_translator(saved)(LINES)] == expected


@pytest.mark.slow
def test_a_student_is_stored_in_a_byte_for_each_weight(runs):
    """Its outputs are those of a table whose rows are whole numbers times a factor each."""
    folder, _ = runs
    run = load_run(folder / "student")
    found = load_translator(export(run, folder / "small", storage="int8"))(LINES)
    assert [one.text for one in found] != [text for text, _ in translate_texts(run, LINES)]
    # Of this small model the table alone is large enough to be stored so.
    table = run.model.decoder_embedding.embeddings
    numbers = to_numpy(table)
    factors = np.abs(numbers).max(axis=1, keepdims=True) / 127
    table.assign(np.rint(numbers / np.where(factors, factors, 1)) * factors)
    expected = translate_texts(run, LINES)
    assert [one.text for one in found] == [text for text, _ in expected]
    scores = [[one.score for one in found], [score for _, score in expected]]
    np.testing.assert_allclose(*scores, rtol=1e-4)


@pytest.mark.slow
def test_a_fine_tuned_student_goes_to_the_engine(tmp_path, corpus):
    """One of the width that the engine asks for; what is written is what was learned, rounded."""
    sizes = {"hidden_dim": 64, "intermediate_dim": 64}
    files = make_random_folder("marian_npz", tmp_path / "files", **sizes)
    data = {"data": str(corpus), "source": "en", "target": "de", "evaluation.max_length": 12}
    import_pretrained(str(files), tmp_path / "student", data)
    config = RunDirectory(tmp_path / "student").read_config()
    changes = {
        "training.start_from": str(tmp_path / "student"),
        "training.lora_rank": 2,
        "training.epochs": 1,
        "training.tokens_per_batch": 2048,
        "training.jit_compile": False,
        "model.dropout": 0.1,
    }
    tuned = train(config.replace(changes), tmp_path / "tuned", **SILENT)
    folder = export_for_engine(tuned, tmp_path / "engine")
    read = load_pretrained(folder).model
    for weight, other in zip(read.weights, tuned.model.weights, strict=True):
        ours, theirs = to_numpy(other), to_numpy(weight)
        step = np.abs(ours).max() / 127 if weight.name in ("kernel", "embeddings") else 0
        rows = slice(None, min(len(ours), len(theirs)))
        np.testing.assert_allclose(theirs[rows], ours[rows], atol=0.51 * step + 1e-7)


def _log_probabilities(folder):
    """Of all tokens, after the first words of what Marian said."""
    pretrained = load_pretrained(folder)
    tokenizers, pad = pretrained.tokenizers, pretrained.model.config.pad_id
    rows = [tokenizers.source.encode(line)[:11] for line in LINES]
    width = max(map(len, rows)) + 1
    source = np.array([[*row, 0] + [pad] * (width - len(row) - 1) for row in rows])
    target = np.array([[pad, *row] + [pad] * (width - len(row) - 1) for row in rows])
    logits = pretrained.model({"source": source, "target": target})
    return marian_formula.log_softmax(to_numpy(logits).astype("float64"))


def test_a_bin_of_eight_bits_is_its_dequantised_twin(tmp_path):
    """Matrices as whole numbers, and the same as float32 in a `.bin` and in an `.npz`."""
    tensors = {name: each.read() for name, each in read_npz(STUDENTS / "ssru.npz").items()}
    settings = tensors.pop(SETTINGS).tobytes()
    small = {
        name: EightBitMatrix.of(each) if min(each.shape) > 1 else each
        for name, each in tensors.items()
    }
    assert sum(isinstance(each, EightBitMatrix) for each in small.values()) > 20
    twin = {
        name: each.floats() if isinstance(each, EightBitMatrix) else each
        for name, each in small.items()
    }
    folders = [tmp_path / name for name in ("intgemm8", "float32", "npz")]
    for folder in folders:
        folder.mkdir()
        shutil.copy(STUDENTS / "vocab.spm", folder)
    write_marian_bin(folders[0] / "model.bin", {**small, SETTINGS: settings})
    write_marian_bin(folders[1] / "model.bin", {**twin, SETTINGS: settings})
    np.savez(folders[2] / "model.npz", **twin, **{SETTINGS: np.frombuffer(settings, np.int8)})
    whole = read_marian_bin(folders[0] / "model.bin")
    assert sum(isinstance(each, StoredEightBitMatrix) for each in whole.values()) > 20
    found, *others = map(_log_probabilities, folders)
    for other in others:
        np.testing.assert_allclose(found, other, rtol=0, atol=1e-3)
    # Eight bits are no rounding of the last digit.
    shutil.copy(STUDENTS / "ssru.npz", folders[2] / "model.npz")
    assert np.abs(found - _log_probabilities(folders[2])).max() > 1e-2


def test_whole_numbers_without_a_multiplier_are_refused(tmp_path):
    """A file has the type for its settings; a matrix of it would be loaded as from -127 to 127."""
    tensors = {name: each.read() for name, each in read_npz(STUDENTS / "ssru.npz").items()}
    matrix = EightBitMatrix.of(tensors["Wemb"]).integers
    np.savez(tmp_path / "model.npz", **{**tensors, "Wemb": matrix})
    with pytest.raises(ValueError, match=r"not what they are multiplied by.*1 such.*, Wemb among"):
        load_pretrained(tmp_path / "model.npz", tokenizers=None)
