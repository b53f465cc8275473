"""A student from a teacher: the whole way, and a command that is killed on it."""

import contextlib
import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from killed_training import config as small_config

from keras_addnorm.data.text_noise import TextNoise
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.distillation import distill as module
from keras_addnorm.runs.distillation.distill import distill
from keras_addnorm.runs.distillation.settings import DistillationConfig
from keras_addnorm.runs.evaluate import evaluate
from keras_addnorm.runs.portions import Portions
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.runs.translate import n_best_translations
from keras_addnorm.training import sentence_scorer

pytestmark = pytest.mark.slow

SEARCH = {"evaluation.num_beams": 1, "evaluation.max_length": 9, "evaluation.batch_size": 16}
GUIDED = {
    "training.guided_alignment": 0.1,
    "training.ema": 0.0,
    "training.early_stopping": 0,
    # Several validations in an epoch.
    "training.validate_every": 2,
    "training.max_updates": 8,
}


@pytest.fixture(scope="module")
def config(corpus):
    return small_config(corpus).replace({**SEARCH, "training.epochs": 1})


@pytest.fixture(scope="module")
def runs(config, tmp_path_factory):
    """A teacher, and a model of the other direction."""
    folder = tmp_path_factory.mktemp("runs")
    for name, direction in (
        ("teacher", {}),
        ("backward", {"source": "de", "target": "en"}),
    ):
        longer = {"training.epochs": 3, "training.peak_learning_rate": 0.02}
        train(config.replace({**direction, **longer}), folder / name, verbose=0, say=len)
    return folder


@pytest.fixture(scope="module")
def settings(runs):
    return DistillationConfig(
        str(runs / "teacher"),
        backward=str(runs / "backward"),
        drop_worst=0.25,
        beams=3,
        n_best=2,
        noise=1.5,
        eight_bits_epochs=1,
    )


@pytest.fixture(scope="module")
def student(config, settings, tmp_path_factory):
    directory = RunDirectory(tmp_path_factory.mktemp("student") / "run")
    return distill(config.replace(GUIDED), settings, directory, say=len, verbose=0)


def rows(run, name):
    path = run.directory.distillation / name
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def portions(run, name):
    return list(Portions(run.directory.distillation / name, len(rows(run, "pairs.jsonl"))))


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def test_the_hypothesis_nearest_to_the_reference_is_learned_from(student, runs):
    teacher = load_run(runs / "teacher")
    search = {
        "evaluation.num_beams": 3,
        "evaluation.length_penalty": 1.0,
        "evaluation.length_penalty_kind": "average",
    }
    teacher = dataclasses.replace(teacher, config=teacher.config.replace(search))
    pairs = rows(student.run, "pairs.jsonl")
    found = portions(student.run, "translations")
    nearness = sentence_scorer("chrf")
    all_hypotheses = n_best_translations(teacher, [source for source, _ in pairs], 2)
    for (_, reference), hypotheses, result in zip(pairs, all_hypotheses, found, strict=True):
        best = max(hypotheses, key=lambda one: nearness(one.text, reference))
        assert result[0] == best.text
        np.testing.assert_allclose(result[1:], [best.score, nearness(best.text, reference)], 1e-4)
    # Else the choice would be no choice.
    both = zip(found, all_hypotheses, strict=True)
    assert any(result[0] != hypotheses[0].text for result, hypotheses in both)


def test_the_filter_is_the_mean_log_probability_of_the_source(student, runs):
    backward = load_run(runs / "backward")
    tokenizers, model = backward.tokenizers, backward.model
    pairs, translations = rows(student.run, "pairs.jsonl"), portions(student.run, "translations")
    scores = portions(student.run, "scores")
    together = list(zip(pairs, translations, scores, strict=True))
    has_none = [score is None for score in scores]
    expected = [
        not text
        or max(len(tokenizers.source.encode(text)), len(tokenizers.target.encode(source))) > 12
        for (source, _), (text, *_), _ in together
    ]
    assert has_none == expected
    some = [row for row in together if row[2] is not None]
    assert len(some) > 20
    for (source, _), (text, *_), score in some[::5]:
        read = np.array([[*tokenizers.source.encode(text), 2]])
        said = np.array([*tokenizers.target.encode(source), 2])
        decoder = np.array([[1, *said[:-1]]])
        logits = np.asarray(model({"source": read, "target": decoder}))[0]
        expected = log_softmax(logits)[np.arange(len(said)), said].mean()
        np.testing.assert_allclose(score, expected, rtol=1e-4)


def test_the_text_is_what_the_filter_leaves_with_noise(student, config):
    pairs, translations = rows(student.run, "pairs.jsonl"), portions(student.run, "translations")
    scores = [-np.inf if one is None else one for one in portions(student.run, "scores")]
    worst = sorted(range(len(scores)), key=lambda index: (scores[index], -index))
    left_out = set(worst[: len(scores) // 4])
    noise = TextNoise(seed=config.training.seed).scaled(1.5)
    expected = [
        pair
        for number, ((source, _), (text, *_)) in enumerate(zip(pairs, translations, strict=True))
        if number not in left_out and scores[number] > -np.inf
        for pair in noise(number, source, text)
    ]
    folder = student.run.directory.distillation / "corpus" / "text"
    sides = [(folder / f"train.{code}").read_text("utf-8").splitlines() for code in ("en", "de")]
    assert list(zip(*sides, strict=True)) == expected
    assert student.report.written == len(expected)


def test_the_student_is_an_ordinary_run_with_a_card(student):
    directory = student.run.directory
    found = evaluate(load_run(directory), "test")
    assert found.cased.bleu == pytest.approx(student.student.bleu)
    assert found.cased.chrf == pytest.approx(student.student.chrf)
    weights = sum(np.prod(weight.shape) for weight in student.run.model.weights)
    assert student.student.weights == weights
    card = directory.card.read_text(encoding="utf-8")
    for figures in (student.teacher, student.student):
        assert figures.sentences_per_second > 0
    assert f"| BLEU | {student.teacher.bleu:.1f} | {student.student.bleu:.1f} |" in card
    assert f"| chrF | {student.teacher.chrf:.1f} | {student.student.chrf:.1f} |" in card
    assert student.student.megabytes == pytest.approx(4 * weights / 1e6)
    assert found.cased.bleu_signature in card


def test_matrices_of_the_last_run_lie_on_the_grid_and_count_a_byte_for_each_weight(student):
    small = load_run(student.run.directory.path / "eight_bits")
    size = 0
    for variable in small.model.weights:
        values = np.asarray(variable)
        if values.ndim > 1:
            steps = 127 * values / np.abs(values).max()
            np.testing.assert_allclose(steps, steps.round(), atol=1e-4)
        size += values.size * (1 if values.ndim > 1 else 4)
    assert student.eight_bits.megabytes == pytest.approx(size / 1e6)
    assert (student.run.directory.path / "eight_bits" / "alignments.txt").exists()


def test_a_second_call_computes_nothing_again(student, config, settings):
    files = {
        path: path.stat().st_mtime_ns
        for path in student.run.directory.distillation.rglob("*")
        if path.is_file() and path.name not in ("pairs.jsonl", "test.jsonl", "settings.toml")
    }
    again = distill(config.replace(GUIDED), settings, student.run.directory, say=len, verbose=0)
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert (again.teacher, again.student, again.report) == (
        student.teacher,
        student.student,
        student.report,
    )


class StoppedError(Exception):
    """In the place of a signal."""


def test_the_last_run_is_counted_in_epochs_and_its_card_goes_when_it_goes_on(
    student, config, settings, monkeypatch
):
    directory = student.run.directory
    small, card = RunDirectory(directory.path / "eight_bits"), directory.card.read_bytes()
    assert len(directory.read_log()) == 4  # A validation each.
    (row,) = small.read_log()

    def stopped(run, place, **options):
        if place.path == small.path:
            assert not directory.card.exists()
            raise StoppedError
        return train(run, place, **options)

    monkeypatch.setattr(module, "train", stopped)
    longer = dataclasses.replace(settings, eight_bits_epochs=2)
    with pytest.raises(StoppedError):
        distill(config.replace(GUIDED), longer, directory, say=len, verbose=0)
    monkeypatch.undo()
    distill(config.replace(GUIDED), settings, directory, say=len, verbose=0)
    assert (directory.card.read_bytes(), small.read_log()) == (card, [row])


def test_a_longer_training_that_is_stopped_leaves_no_card_of_the_shorter(
    student, config, settings, tmp_path
):
    directory = RunDirectory(tmp_path / "run")
    shutil.copytree(student.run.directory.path, directory.path)
    begun = directory.read_config()
    train(begun, directory, say=len, verbose=0)
    assert directory.card.exists()  # There was nothing to train.
    said = []
    train(begun.replace({"training.max_updates": 10}), directory, say=said.append, verbose=0)
    assert not directory.card.exists()
    assert any(f"keras-addnorm distill {directory.path} writes it anew" in line for line in said)
    # The file of the first folder's text is the one that its configuration names.
    assert begun.data == str(student.run.directory.distillation / "corpus" / "text")


def working_on(folder):
    """The processes that were given something in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path] * (str(folder).encode() in path.read_bytes())
    return found


@pytest.mark.release
def test_a_killed_command_of_two_processes_goes_on_and_says_the_same(
    tmp_path, runs, corpus, config
):
    more = tmp_path / "more.en"
    words = ("red", "green", "blue", "big")
    more.write_text("".join(f"{a} {b} {c}\n" for a in words for b in words for c in words) * 20)
    settings = tmp_path / "settings.toml"
    settings.write_text(config.to_toml(), encoding="utf-8")

    def command(name, *flags):
        known = [] if (tmp_path / name).exists() else ["--config", settings, "--teacher"]
        known += [runs / "teacher", "--monolingual", more] if known else []
        arguments = [*known, "--teacher-beams", "2", "--n-best", "2", *flags]
        start = [sys.executable, "-W", "ignore", "-m", "keras_addnorm.cli", "distill"]
        return [*start, tmp_path / name, *arguments]

    killed = RunDirectory(tmp_path / "killed")
    two = command("killed", "--processes", "2")
    with subprocess.Popen(two, stdout=subprocess.DEVNULL) as process:
        parts = killed.distillation / "translations"
        while not any(part.stat().st_size for part in parts.glob("*.part")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while working_on(killed.path):  # What it had started ends with it.
        assert time.monotonic() < deadline
        time.sleep(0.1)
    kept = sum(path.read_bytes().count(b"\n") for path in parts.glob("*.part"))
    assert kept > 0 and not any(parts.glob("*.jsonl"))
    subprocess.run(command("killed"), check=True, stdout=subprocess.DEVNULL)
    subprocess.run(command("whole"), check=True, stdout=subprocess.DEVNULL)
    results = []
    for name in ("killed", "whole"):
        folder = tmp_path / name / "distillation"
        total = len((folder / "pairs.jsonl").read_bytes().splitlines())
        results.append(list(Portions(folder / "translations", total)))
    for (text, score, near), (other_text, other_score, other_near) in zip(*results, strict=True):
        assert (text, near) == (other_text, other_near)
        np.testing.assert_allclose(score, other_score, rtol=1e-4)
