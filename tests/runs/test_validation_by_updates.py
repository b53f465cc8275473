"""A training that counts updates in place of epochs: validation, checkpoints, end, resuming."""

import numpy as np
import pytest
from killed_training import config
from weight_files import tensors

from keras_addnorm.data import PipelineReport
from keras_addnorm.runs import RunConfig, RunDirectory, UserError
from keras_addnorm.runs.checks_before_training import require_same_run
from keras_addnorm.runs.progress import epoch_line, summary
from keras_addnorm.runs.resuming import _going_on
from keras_addnorm.runs.train import train
from keras_addnorm.runs.updates import Course, about_cost, about_updates
from keras_addnorm.training import plot_curves
from keras_addnorm.training.checkpoint_file import TrainingState
from keras_addnorm.training.resume import Checkpoints

REPORT = PipelineReport(70, 0, 0, 900, 800, 6, 0.2, ((13, 12, 70),))


def training(**settings):
    return RunConfig.from_dict({"training": settings}).training


@pytest.mark.parametrize(
    ("settings", "course"),
    [
        ({"epochs": 7}, Course(7, 6)),
        ({"epochs": 7, "validate_every": 10}, Course(5, 10, counts_updates=True)),
        ({"max_updates": 40, "validate_every": 10}, Course(4, 10, counts_updates=True)),
        (
            {"max_updates": 40, "validate_every": 10, "batches_per_update": 3},
            Course(4, 30, 3, counts_updates=True),
        ),
        ({"epochs": 7, "batches_per_update": 3}, Course(7, 6, 3)),
    ],
)
def test_how_long_a_training_is(settings, course):
    assert Course.of(training(**settings), 6) == course


def test_what_counts_updates_says_so(tmp_path):
    settings = training(max_updates=4000, validate_every=1000, early_stopping=2)
    course = Course.of(settings, 6)
    assert next(about_updates(settings, REPORT)) == (
        "Updates: 4,000 (max_updates), 6 an epoch; a validation every 1,000."
    )
    row = {"examples_per_second": 7.0, "tokens_per_second": 11.0, "padding": 0.2, "seconds": 30.0}
    rows = [
        {"epoch": n, "updates": 1000 * (n + 1), "val_loss": 3.0 - n, "peak_memory_mib": 5.0, **row}
        for n in range(3)
    ]
    assert epoch_line(rows[2], course, 30.0) == (
        "Update 3,000 of 4,000: 7 examples/s, 11 tokens/s, 20.0% padding; 30 s left."
    )
    directory = RunDirectory(tmp_path)
    directory.best_weights.touch()
    said = summary(directory, rows, 1, REPORT)
    assert "updates     3,000, the best weights are after 2,000" in said
    assert "1 min 30 s, 30 s to each validation" in said
    directory.write_log(rows)
    assert plot_curves(directory.log, directory.curves).stat().st_size > 1000
    going_on = _going_on(TrainingState(3, 10), 6, settings)
    assert going_on == "Going on after update 3,000 of 4,000 and 10 of 1,000 batches."
    waited = {"early_stopping": {"wait": 2}}
    stopped = _going_on(TrainingState(3, callbacks=waited), 6, settings)
    assert stopped.startswith("Stopped early after update 3,000: val_perplexity did not get better")
    assert "for 2 validations." in stopped


def test_what_a_training_costs_is_said_before_it_starts():
    """800 tokens are 1,000 positions an epoch, 20 epochs; six operations a weight and position.

    6 · 7e6 · 20,000 are 840e9 operations.
    """
    assert about_cost(training(epochs=20), REPORT, 7_000_000) == (
        "Cost: 16 thousand target tokens, 20 thousand with padding, and about 840 GFLOP (billions "
        "of floating-point operations)."
    )
    updates = training(max_updates=120, validate_every=60, batches_per_update=2)
    assert about_cost(updates, REPORT, 7).startswith("Cost: 32 thousand target tokens, 40 thousand")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_updates": 7}, "max_updates must be training.validate_every with it"),
        ({"max_updates": 7, "validate_every": 3}, r"a multiple of training.validate_every = 3\."),
        ({"validate_every": -1}, "validate_every must be at least 0"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(UserError, match=message):
        training(**settings)


def test_a_run_keeps_what_lies_between_two_validations(tmp_path):
    directory = RunDirectory(tmp_path)
    before = RunConfig().replace({"training.validate_every": 7})
    directory.write_config(before)
    directory.checkpoints.mkdir()
    (directory.checkpoints / "epoch-0001.weights.h5").touch()
    directory.best_weights.touch()
    require_same_run(before.replace({"training.max_updates": 70}), directory)
    with pytest.raises(UserError, match=r"Expected training.validate_every = 7\..*Received: 0"):
        require_same_run(before.replace({"training.validate_every": 0}), directory)


def test_other_data_inside_of_a_pass_are_said():
    course = Course(9, 10, counts_updates=True)
    assert course.is_other(TrainingState(3, batches=10, plan="a"), "b")
    assert course.is_other(TrainingState(3, batches=20, plan="a"), "a")
    assert not course.is_other(TrainingState(3, batches=10, plan="a"), "a")
    assert not course.is_other(TrainingState(0), "a")
    assert not Course(9, 10).is_other(TrainingState(3, batches=10, plan="a"), "b")


def finished(corpus, directory, **changes):
    """Trains a run, and returns its last checkpoint, its log and what was said."""
    said = []
    settings = config(corpus).replace({f"training.{n}": value for n, value in changes.items()})
    train(settings, directory, say=said.append, verbose=0)
    run = RunDirectory(directory)
    return tensors(sorted(run.checkpoints.iterdir())[-1]), run.read_log(), said


def assert_same(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key], err_msg=key)


@pytest.mark.slow
def test_the_updates_of_an_epoch_are_an_epoch_to_the_bit(corpus, tmp_path):
    epochs, log, said = finished(corpus, tmp_path / "epochs", warmup_steps=3)
    assert "Updates: 16, 8 an epoch." in said
    updates, counted, said = finished(
        corpus, tmp_path / "updates", validate_every=8, max_updates=16, epochs=1
    )
    assert "Updates: 16 (max_updates), 8 an epoch; a validation every 8." in said
    assert_same(epochs, updates)
    assert [row["updates"] for row in counted] == [8, 16]
    for one, other in zip(log, counted, strict=True):
        assert "updates" not in one
        assert one["val_loss"] == other["val_loss"] and one["loss"] == other["loss"]


@pytest.mark.release
def test_a_killed_training_goes_on_inside_of_its_updates_to_the_bit(corpus, tmp_path, monkeypatch):
    """Killed in the third stretch of three updates, behind the end of the first pass of eight."""
    options = {"validate_every": 3, "max_updates": 12, "checkpoint_batches": 1, "keep_last": 4}
    whole, log, _ = finished(corpus, tmp_path / "whole", **options)
    assert [row["updates"] for row in log] == [3, 6, 9, 12]
    original = Checkpoints.on_train_batch_end

    class KilledError(Exception):
        pass

    def die(self, index, logs=None):
        original(self, index, logs)
        if (self.position.epoch, self.position.batch) == (2, 2):
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_batch_end", die)
        with pytest.raises(KilledError):
            finished(corpus, tmp_path / "killed", **options)
    killed, rows, said = finished(corpus, tmp_path / "killed", **options)
    assert "Going on after update 6 of 12 and 2 of 3 batches." in said
    assert_same(whole, killed)
    for one, other in zip(log, rows, strict=True):
        assert one["val_loss"] == other["val_loss"] and one["loss"] == other["loss"]
    # More updates go on from the last one.
    *_, said = finished(corpus, tmp_path / "killed", **{**options, "max_updates": 15})
    assert "Going on after update 12 of 15." in said
