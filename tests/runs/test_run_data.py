"""The pairs of a run: single files, held-out pairs, named validation sets, every line of a test."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from keras_addnorm.data import ByteTokenizer, PipelineReport, TokenizerPair
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.data.translation_set import Split
from keras_addnorm.runs import RunConfig, RunDirectory, UserError, evaluate
from keras_addnorm.runs import train as train_module
from keras_addnorm.runs.checks_before_training import require_same_run
from keras_addnorm.runs.prepare import _datasets, _say_faults
from keras_addnorm.runs.text_data import (
    RunPairs,
    load_or_train_tokenizers,
    load_pairs,
    load_texts,
    run_pairs,
)
from keras_addnorm.runs.train import train
from keras_addnorm.runs.training_ids import training_ids
from keras_addnorm.training import TranslationScore

PAIRS = [(f"sentence {n}", f"frase {n}") for n in range(50)]
# The third is too long, the fifth has no source, the sixth no reference.
TEST = [("a b", "c d"), ("e", "f"), ("g" * 1500, "h"), ("i", "j"), ("", "k"), ("l", "")]


@pytest.fixture
def spa(tmp_path):
    path = tmp_path / "spa.txt"
    path.write_text("".join(f"{a}\t{b}\ttatoeba.org\n" for a, b in PAIRS))
    return path


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split, pairs in (("train", PAIRS), ("val", TEST), ("test", TEST)):
        for side, language in enumerate(("en", "es")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(text)
    return folder


def config_of(data, **settings):
    return RunConfig.from_dict({"data": str(data), "source": "en", "target": "es", **settings})


def test_m3_pairs_are_held_out_of_a_single_file_and_it_is_said(spa):
    config = config_of(spa)
    pairs = run_pairs(config)
    training, validation = texts(pairs.training), texts(pairs.validation)
    assert (len(training), len(validation)) == (45, 5)
    assert {*training} | {*validation} == {*PAIRS}
    (note,) = pairs.notes
    assert note.startswith(
        f"There is no validation set in '{spa}': 5 of 50 training pairs are held"
    )
    # Every other command finds the same ones under the name that other data have.
    assert texts(load_pairs(config, "validation")) == validation
    assert texts(load_pairs(config, "val[1:3]+dev[:1]")) == [*validation[1:3], validation[0]]
    # As the reader says, `train` is the whole file.
    assert len(texts(load_pairs(config, "train"))) == 50


def test_what_a_part_of_the_training_set_holds_out_is_what_an_evaluation_finds(spa):
    config = config_of(spa, split="train[20:]")
    pairs = run_pairs(config)
    training, validation = texts(pairs.training), texts(pairs.validation)
    assert {*training} | {*validation} == {*PAIRS[20:]}
    assert texts(load_pairs(config, "validation")) == validation
    # Another split would hold out others, which these weights may have been trained on.
    directory = RunDirectory(spa.parent / "run")
    directory.path.mkdir()
    directory.model.touch()
    directory.write_config(config)
    with pytest.raises(UserError, match="with another 'split'"):
        require_same_run(config.replace({"split": "train"}), directory)


def test_the_split_of_a_training_in_python_is_a_setting_of_its_run(spa, tmp_path, monkeypatch):
    seen = []

    def prepare(config, *_):
        seen.append(config)
        raise UserError("enough")

    monkeypatch.setattr(train_module, "prepare", prepare)
    with pytest.raises(UserError, match="enough"):
        train(config_of(spa), tmp_path / "run", split="train[:20]", verbose=0)
    assert seen == [config_of(spa, split="train[:20]")]


def _check(config, pairs, report, folder):
    tokenizers, said = TokenizerPair.joint(ByteTokenizer()), []
    ids = training_ids(config, RunDirectory(folder / "run"), pairs, tokenizers)
    _say_faults(config, ids, report, said.append)
    return said


def test_training_pairs_are_compared_with_every_other_split(folder, tmp_path):
    """What `train` warns of comes from the same code as `keras-addnorm data`."""
    for side, text in (("en", "sentence 7\n"), ("es", "frase 7\n")):
        with (folder / f"test.{side}").open("a") as file:
            file.write(text)
    pairs = run_pairs(config_of(folder))
    usable = [TEST[0], TEST[1], TEST[3]]
    assert texts(pairs.others) == [*usable, *usable, PAIRS[7]]
    report = PipelineReport(50, 0, 0, 0, 0, 1, 0.0, ())
    said = _check(config_of(folder), pairs, report, tmp_path)
    assert said == ["Checked the training pairs: 1 in held out."]


@pytest.mark.parametrize(("data", "hints"), [("demo/en-de", False), ("./demo/en-de", True)])
def test_sentences_from_templates_may_be_near_each_other(data, hints, tmp_path):
    pairs = RunPairs([("Anna has two red cars.", "A")], [], [("Anna has two red dogs.", "B")])
    config = RunConfig.from_dict({"data": data, "source": "en", "target": "de"})
    said = _check(config, pairs, PipelineReport(1, 0, 0, 0, 0, 1, 0.0, ()), tmp_path)
    assert said[0].startswith("Checked the training pairs: perhaps 1 near held") == hints
    assert said[0].startswith("Checked the training pairs: no pair has a fault.") != hints


def test_a_file_without_other_splits_is_compared_with_what_is_held_out(spa):
    assert list(run_pairs(config_of(spa)).others) == []


@pytest.mark.parametrize(("data", "passes"), [("folder", 2), ("spa", 4)])
def test_how_often_a_training_reads_its_text(data, passes, request, monkeypatch, tmp_path):
    """Once for the vocabulary, once for the ids; twice more where pairs are held out.

    A second start reads it for what is held out alone.
    """
    config = config_of(request.getfixturevalue(data))
    read = []
    judged = Split._judged
    monkeypatch.setattr(Split, "_judged", lambda split: read.append(split.name) or judged(split))
    directory = RunDirectory(tmp_path / "run")
    devices = SimpleNamespace(sums_replicas=False, row_share=(0, 1))
    counts, plans, said = [], [], []
    for _ in range(2):
        pairs = run_pairs(config)
        tokenizers = load_or_train_tokenizers(config, directory, pairs.training)
        ids = training_ids(config, directory, pairs, tokenizers)
        training, _ = _datasets(config.training, tokenizers, pairs, ids, None, devices)
        _say_faults(config, ids, training.report, said.append)
        counts.append(read.count("train"))
        plans.append(training.epochs.plan)
        read.clear()
    assert counts == [passes, passes - 2]
    assert plans[0] == plans[1] and said[: len(said) // 2] == said[len(said) // 2 :]


@pytest.mark.parametrize(
    ("validation", "split", "training", "expected"),
    [
        ("train[:10%]", "train", PAIRS[5:], PAIRS[:5]),
        ("train[40:]", "train[20:]", PAIRS[20:40], PAIRS[40:]),
        ("train[10:20]", "train", PAIRS[:10] + PAIRS[20:], PAIRS[10:20]),
    ],
)
def test_m3_a_named_part_is_not_trained_on(spa, validation, split, training, expected):
    pairs = run_pairs(config_of(spa, validation=validation, split=split))
    assert (texts(pairs.training), texts(pairs.validation)) == (training, expected)
    assert pairs.notes == ()


def test_m3_validation_in_another_split_or_file(folder, spa):
    pairs = run_pairs(config_of(folder, validation="test[:2]"))
    assert (texts(pairs.training), texts(pairs.validation)) == (PAIRS, TEST[:2])
    held_out = folder / "mine.tsv"
    held_out.write_text("x\ty\n")
    pairs = run_pairs(config_of(spa, validation=str(held_out)))
    assert (texts(pairs.training), texts(pairs.validation)) == (PAIRS, [("x", "y")])


@pytest.mark.parametrize(
    ("validation", "message"),
    [("train", "Nothing is left to train on"), ("vall", "no split 'vall'"),
     ("train[:x]", r"'train\[:x\]' is no split")],
)  # fmt: skip
def test_m3_validation_that_cannot_be(spa, validation, message):
    with pytest.raises(UserError, match=message):
        run_pairs(config_of(spa, validation=validation))


def test_f6_every_line_of_a_test_set_is_translated_and_counted(folder, tmp_path, monkeypatch):
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.best_weights.touch()
    run = SimpleNamespace(config=config_of(folder), directory=directory)
    monkeypatch.setattr(
        evaluate,
        "translate_texts",
        lambda run, sources, verbose: [(text.upper(), 0.0) for text in sources],
    )
    found = evaluate.evaluate(run, "test")
    assert list(zip(found.sources, found.references, strict=True)) == TEST
    lines = directory.translations.read_text().split("\n")
    assert lines == [*(source.upper() for source, _ in TEST), ""]
    scores = json.loads(directory.scores.read_text())["test"]
    assert (scores["sentences"], scores["empty"]) == (6, 2)
    said = "over all 6 pairs of 'test', 2 of them with an empty side"
    assert said in evaluate.summary(found)
    # Parts are parts of the file.
    assert load_texts(config_of(folder), "test[4:]", keep_every_pair=True) == (["", "l"], ["k", ""])
    # What a training reads is without them.
    assert texts(load_pairs(config_of(folder), "test")) == [TEST[0], TEST[1], TEST[3]]


def test_f6_every_line_of_a_validation_set_is_scored(folder):
    validation = run_pairs(config_of(folder)).validation
    assert texts(validation) == TEST
    sources, references = zip(*TEST, strict=True)
    score = TranslationScore(sources, references, lambda model, some: list(references))
    score.on_epoch_end(0, logs := {})
    assert round(logs["val_chrf"]) == 100


def test_f6_a_test_file_that_is_no_part_of_the_data(spa, tmp_path):
    other = tmp_path / "other.tsv"
    other.write_text("x\ty\n\nz\tw\n")
    config = config_of(spa)
    assert load_texts(config, str(other), keep_every_pair=True) == (["x", "", "z"], ["y", "", "w"])
    with pytest.raises(UserError, match=r"spa.txt has no split 'other'"):
        load_texts(config, "other")
    for split in ("test", "test[:3]"):
        with pytest.raises(
            UserError, match=r"no test set. .*no split 'test'. .*'train'.*split=validation.*tsv"
        ):
            load_texts(config, split, keep_every_pair=True)


def test_what_is_found_while_reading_is_an_error_of_the_user(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"en": "x", "es": "y"}\n' * 3 + "{broken\n")
    with pytest.raises(UserError, match=r"a.jsonl, line 4"):
        load_texts(config_of(path), "train")


def test_columns_and_format_are_settings(tmp_path):
    path = tmp_path / "questions.dat"
    path.write_text("n;question;answer\n1;x;y\n")
    config = config_of(
        path, data_format="csv", source_column="answer", target_column="2", validation="train"
    )
    assert texts(load_pairs(config, "train")) == [("y", "x")]
    with pytest.raises(UserError, match=r"Unknown data_format 'cvs'. Did you mean 'csv'"):
        config_of(path, data_format="cvs")


def test_what_decides_about_the_pairs_cannot_change_in_a_run(spa, tmp_path):
    directory = RunDirectory(tmp_path)
    directory.model.touch()
    directory.write_config(config_of(spa))
    require_same_run(config_of(spa), directory)
    for change in ({"validation": "train[:1]"}, {"source_column": "2"}, {"data_format": "csv"}):
        with pytest.raises(UserError, match=f"with another {next(iter(change))!r}"):
            require_same_run(config_of(spa).replace(change), directory)


def test_m1_the_standard_input_is_kept_in_the_run(spa, tmp_path, monkeypatch):
    seen = []

    def prepare(config, *_):
        seen.append(config)
        raise UserError("enough")

    monkeypatch.setattr(train_module, "prepare", prepare)
    directory = RunDirectory(tmp_path / "run")

    def go(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(UserError) as error:
            train(config_of("-"), directory, verbose=0)
        return str(error.value)

    assert go(spa.read_bytes()) == "enough"
    assert seen[0].data == str(directory.path / "standard_input")
    assert len(texts(load_pairs(seen[0], "train"))) == 50
    directory.write_config(seen[0])
    directory.model.touch()
    assert go(spa.read_bytes()) == "enough"
    assert "trained on other data than this standard input" in go(b"x\ty\n")
    assert (directory.path / "standard_input").read_bytes() == spa.read_bytes()


def texts(pairs):
    return list(string_pairs(pairs))
