"""Runs that learn from word alignments and from a teacher, and on the grid of eight bits."""

import shutil

import h5py
import numpy as np
import pytest
from killed_training import config as base_config
from weight_files import tensors

from keras_addnorm.alignment import read_pharaoh, write_pharaoh
from keras_addnorm.data import TokenizerPair, align_pieces, piece_links
from keras_addnorm.decoding import Lexicon
from keras_addnorm.runs import RunConfig, RunDirectory, UserError
from keras_addnorm.runs.distillation.settings import student_config
from keras_addnorm.runs.text_data import run_pairs
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import digest_of_run, load_run
from keras_addnorm.runs.translation_portions import RunTranslator

GUIDED = {"training.guided_alignment": 0.5, "training.ema": 0.0, "training.early_stopping": 0}
SILENT = {"say": lambda line: None, "verbose": 0}


def config(corpus, **changes):
    return base_config(corpus).replace({**GUIDED, **changes})


@pytest.fixture(scope="module")
def guided(corpus, tmp_path_factory):
    """A run of two epochs with its own alignments, in one go."""
    directory = RunDirectory(tmp_path_factory.mktemp("guided"))
    train(config(corpus), directory, **SILENT)
    return directory


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training.alignments": "a", "training.guided_alignment": 0.0}, "training.alignments"),
        ({"training.subword_sampling": 0.1}, "training.guided_alignment"),
        ({"training.eight_bits": True, "training.ema": 0.9}, "training.eight_bits"),
        ({"training.eight_bits": True, "training.average_last": 2}, "training.average_last"),
        ({"training.temperature": 0.0}, "training.temperature"),
        ({"training.temperature": 2.0}, "training.temperature=1.0 without teacher"),
        ({"training.distillation": 0.5}, "training.distillation=1.0 without teacher"),
        (
            {"training.alignments": "missing", "training.guided_alignment": 0.1},
            "cannot be read: No such file .* as training.alignments. Received: 'missing'",
        ),
    ],
)
def test_settings_that_exclude_each_other_are_refused(corpus, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        train(config(corpus, **changes), tmp_path, **SILENT)
    assert not [*tmp_path.iterdir()]


def test_a_student_has_post_ln_unless_another_scheme_is_asked_for():
    found = [
        RunConfig.from_dict({"model": model}).model.overrides["scheme"]
        for model in (
            {"preset": "student-tiny"},
            {"preset": "tiny"},
            {"preset": "student-tiny", "scheme": "pre_ln"},
        )
    ]
    assert found == ["post_ln", "pre_ln", "pre_ln"]
    distilled = [student_config(settings) for settings in ({}, {"model.preset": "student-micro"})]
    assert [one.model.overrides["scheme"] for one in distilled] == ["post_ln", "post_ln"]


@pytest.mark.parametrize(
    ("before", "changes", "scheme"),
    [
        ({"preset": "base"}, {"model.preset": "student-tiny"}, "post_ln"),
        ({"preset": "student-tiny"}, {"model.preset": "base"}, "pre_ln"),
        ({"preset": "base", "scheme": "keel"}, {"model.preset": "student-tiny"}, "keel"),
        ({"preset": "base"}, {"model.preset": "student-tiny", "model.scheme": "keel"}, "keel"),
        ({"preset": "student-tiny"}, {"training.epochs": 3}, "post_ln"),
    ],
)
def test_another_preset_brings_its_scheme(before, changes, scheme):
    changed = RunConfig.from_dict({"model": before}).replace(changes)
    assert changed.model.overrides["scheme"] == scheme


@pytest.mark.slow
def test_a_run_aligns_its_pairs_once_and_keeps_the_links(guided, corpus):
    pairs = list(run_pairs(config(corpus)).training)
    links = align_pieces(pairs, TokenizerPair.load(guided.tokenizer))
    found = read_pharaoh(guided.alignments)
    assert [row.tolist() for row in found] == [row.tolist() for row in links]
    guided.alignments.write_text("0-0\n")
    with pytest.raises(UserError, match=r"alignments\.txt"):
        guided.check(guided.alignments)
    write_pharaoh(guided.alignments, found)
    guided.check(guided.alignments)


@pytest.mark.slow
def test_a_second_command_goes_on_to_the_same_weights(guided, corpus, tmp_path):
    directory = RunDirectory(tmp_path)
    train(config(corpus, **{"training.epochs": 1}), directory, **SILENT)
    said = []
    train(config(corpus), directory, say=said.append, verbose=0)
    assert any(line.startswith("Going on after epoch 1") for line in said)
    assert not any("alignments" in line for line in said)
    name = "checkpoints/epoch-0002.weights.h5"
    whole, again = tensors(guided.path / name), tensors(tmp_path / name)
    assert whole.keys() == again.keys()
    for key, value in whole.items():
        np.testing.assert_array_equal(value, again[key], err_msg=key)


@pytest.mark.slow
def test_links_of_words_come_from_a_file(corpus, tmp_path):
    pairs = list(run_pairs(config(corpus)).training)
    words = [np.array([[0, len(target.split()) - 1]]) for _, target in pairs]
    write_pharaoh(tmp_path / "links", words)
    directory = RunDirectory(tmp_path / "run")
    changes = {"training.alignments": str(tmp_path / "links"), "training.epochs": 1}
    train(config(corpus, **changes), directory, **SILENT)
    expected = piece_links(pairs, TokenizerPair.load(directory.tokenizer), words)
    found = read_pharaoh(directory.alignments)
    assert [row.tolist() for row in found] == [row.tolist() for row in expected]

    write_pharaoh(tmp_path / "links", words[1:])
    with pytest.raises(UserError, match=f"a line for each of {len(pairs)} pairs"):
        train(config(corpus, **changes), tmp_path / "other", **SILENT)
    assert not (tmp_path / "other" / "alignments.txt").exists()


@pytest.mark.slow
def test_a_shortlist_counts_the_links(guided):
    run = load_run(guided)
    changed = run.config.replace({"evaluation.shortlist": 9})
    guided.write_config(changed)
    found = load_run(guided).shortlist.lexicon
    end, tokenizers = [2], run.tokenizers
    encoded = [
        (tokenizers.source.encode(source) + end, tokenizers.target.encode(target) + end)
        for source, target in run_pairs(run.config).training
    ]
    size = tokenizers.source.vocabulary_size
    sizes = {"source_vocabulary_size": size, "target_vocabulary_size": size}
    expected = Lexicon.from_links(encoded, read_pharaoh(guided.alignments), **sizes)
    np.testing.assert_array_equal(found.candidates, expected.candidates)
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)


@pytest.mark.slow
def test_translations_depend_on_the_lexicon_where_there_is_a_shortlist(guided, tmp_path):
    directory = RunDirectory(tmp_path / "run")
    shutil.copytree(guided.path, directory.path)
    directory.lexicon.unlink(missing_ok=True)
    usual = directory.read_config().replace({"evaluation.shortlist": 0})
    short = usual.replace({"evaluation.shortlist": 9})
    without = digest_of_run(directory, usual)
    assert not directory.lexicon.exists()
    first = RunTranslator(directory, short).made_from()["run"]
    lexicon = Lexicon.load(directory.lexicon)
    assert digest_of_run(directory, short) == first != without
    # Without the links another lexicon is estimated.
    directory.lexicon.unlink()
    directory.alignments.unlink()
    assert digest_of_run(directory, short) != first
    assert not np.array_equal(Lexicon.load(directory.lexicon).candidates, lexicon.candidates)
    assert digest_of_run(directory, usual) == without


@pytest.mark.slow
def test_a_teacher_teaches_a_student_of_eight_bits(guided, corpus, tmp_path):
    """Starts from the run whose tokenizers they share; the kept weights lie on the grid."""
    changes = {
        "training.start_from": str(guided.path),
        "training.teacher": str(guided.path),
        "training.temperature": 2.0,
        "training.eight_bits": True,
        "training.guided_alignment": 0.0,
        "training.epochs": 1,
    }
    directory = RunDirectory(tmp_path)
    train(config(corpus, **changes), directory, **SILENT)
    matrices = [
        weight.numpy()
        for weight in load_run(directory).model.weights
        if weight.name in ("kernel", "embeddings")
    ]
    assert len(matrices) == 17
    for matrix in matrices:
        whole = matrix * 127 / np.abs(matrix).max()
        assert np.abs(whole - whole.round()).max() < 1e-4
    with h5py.File(directory.checkpoints / "epoch-0001.weights.h5") as file:
        assert "optimizer" in file
    with pytest.raises(UserError, match="another optimiser"):
        train(config(corpus, **{**changes, "training.eight_bits": False}), directory, **SILENT)


@pytest.mark.slow
def test_a_teacher_of_other_tokenizers_is_refused(guided, corpus, tmp_path):
    changes = {"training.teacher": str(guided.path), "tokenizer.vocabulary_size": 41}
    with pytest.raises(UserError, match="has other tokenizers than this run"):
        train(config(corpus, **changes), tmp_path, **SILENT)
