"""Where a training starts: at its last checkpoint, at another run's weights, or anew."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.integrity import DamagedFileError
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.distribution import Devices, is_first
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.optimization import go_on_with_learning_rate
from keras_addnorm.runs.settings import RunConfig, TrainingConfig
from keras_addnorm.runs.trained_run import load_weights
from keras_addnorm.runs.training_ids import remove_preparation
from keras_addnorm.runs.updates import Course
from keras_addnorm.training.checkpoint_file import (
    TrainingState,
    build_variables,
    load_checkpoint,
    newest_checkpoint,
    read_checkpoint,
    read_unverified,
)

_OTHER_PASS = (
    "Warning: the training data are others or divided otherwise now (texts, seed, buckets, tokens "
    "per batch), and the checkpoint stands inside of a pass over them: of this pass, some pairs "
    "may come twice, and some not at all."
)


@contextlib.contextmanager
def early_config(config: RunConfig, directory: RunDirectory) -> Iterator[None]:
    """Writes a new run's configuration before the slow preparation; removes a refused one."""
    if not is_first() or directory.config.exists():
        yield
        return
    had_tokenizers = directory.has_tokenizers()
    directory.write_config(config)
    try:
        yield
    except Exception:
        directory.remove_config()
        if not had_tokenizers:  # They were made for the settings that are refused.
            remove_preparation(directory)
        raise


def last_checkpoint(
    directory: RunDirectory, say: Callable[[str], None]
) -> tuple[Path | None, TrainingState]:
    """Finds the newest checkpoint of a run that is whole, and names the damaged ones."""

    def name(path: Path, error: Exception) -> None:
        say(f"Warning: the checkpoint {path} is damaged ({error}); taking the one before it.")

    read = read_checkpoint if directory.verify else read_unverified
    found = newest_checkpoint(directory.checkpoints, name, read)
    return found or (None, TrainingState(epoch=0))


def place_to_go_on(
    directory: RunDirectory, say: Callable[[str], None]
) -> tuple[Path | None, TrainingState]:
    """Finds where a training goes on: at the newest checkpoint that is whole, if there is any.

    A `UserError` says that there are checkpoints, and all of them are damaged.
    """
    checkpoint, found = last_checkpoint(directory, say)
    if checkpoint is None and directory.has_checkpoints():
        raise UserError(
            f"All checkpoints in {str(directory.checkpoints)!r} are damaged, and a training that "
            "begins anew would replace the weights of this run. Copy a checkpoint there from where "
            "it is whole, or choose another run directory. --start-from begins a new run with the "
            "weights of this one."
        )
    return checkpoint, found


def resume_or_start(
    model: Seq2SeqTransformer,
    training: TrainingConfig,
    directory: RunDirectory,
    place: tuple[Path | None, TrainingState],
    devices: Devices,
    epochs: Any,
    report: PipelineReport,
    say: Callable[[str], None],
) -> TrainingState:
    """Gives a compiled model its weights and optimiser state, and finds its place in the data.

    A `UserError` says that the checkpoint does not hold the variables of model and optimiser.
    """
    checkpoint, found = place
    course = Course.of(training, report.batches)
    state = found.with_batches(course.batches, epochs.plan)
    if state is not found:
        say(_starting_anew(found))
    elif course.is_other(found, epochs.plan):
        say(_OTHER_PASS)
    some_batch = next(epochs.batches(state.epoch))
    if devices.sums_replicas:
        # Keras would do it itself, with the mean of the replicas' ids, which are no whole numbers.
        build_variables(model, some_batch)
    if checkpoint is not None:
        _load(model, checkpoint, some_batch, directory)
        left = course.steps - state.epoch * course.batches - state.batch
        go_on_with_learning_rate(model, training, report.batches, left)
        say(_going_on(state, report.batches, training))
    elif training.start_from:
        start = RunDirectory(training.start_from, verify=directory.verify)
        weights = start.weights()
        start.check(weights)
        # The other run's optimiser is not in the file, and this training begins with a new one.
        load_weights(model, weights, objects_to_skip=[model.optimizer])
        say(f"Starting from the weights in {weights}.")
    return state


def _load(model: Any, checkpoint: Path, batch: Any, directory: RunDirectory) -> None:
    try:
        load_checkpoint(model, checkpoint, batch)
    except DamagedFileError:
        raise
    except ValueError as error:
        raise UserError(
            f"{error} With this command that is train NEW --start-from {directory.path}."
        ) from error


def has_stopped(state: TrainingState, training: TrainingConfig) -> bool:
    """Tells whether an earlier command stopped early, and would do so again."""
    waited = state.callbacks.get("early_stopping", {}).get("wait", 0)
    is_known = isinstance(waited, int | float)
    return bool(training.early_stopping) and is_known and waited >= training.early_stopping


def _going_on(state: TrainingState, batches_of_pass: int, training: TrainingConfig) -> str:
    course = Course.of(training, batches_of_pass)
    if has_stopped(state, training):
        after, _, _ = course.name(state.epoch).partition(" of ")
        units = "validations" if course.counts_updates else "epochs"
        return (
            f"Stopped early after {after}: {training.best_metric} did not get better "
            f"for {training.early_stopping} {units}. A larger --early-stopping goes on."
        )
    inside = f" and {state.batch:,} of {course.batches:,} batches" if state.batch else ""
    return f"Going on after {course.name(state.epoch)}{inside}."


def _starting_anew(found: TrainingState) -> str:
    return (
        f"Warning: the checkpoint is of {found.batch:,} batches into epoch {found.epoch + 1}, but "
        "the training data are others or divided otherwise now (texts, seed, buckets, tokens per "
        "batch): the epoch starts anew with the weights of the checkpoint. To go on inside of it, "
        "stop and give the settings and texts as they were."
    )
