"""Trains a run, or goes on with one: prepare, fit, finish."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import keras

from keras_addnorm import distribution
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.integrity import DamagedFileError
from keras_addnorm.distribution import is_first
from keras_addnorm.runs.callback_list import TrainingCallbacks, training_callbacks
from keras_addnorm.runs.checks_before_training import require_place_to_go_on, require_trainable
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import system_errors_as_user_errors
from keras_addnorm.runs.optimization import computing_in
from keras_addnorm.runs.prepare import Prepared, prepare
from keras_addnorm.runs.progress import summary
from keras_addnorm.runs.resuming import has_stopped
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import show
from keras_addnorm.runs.text_data import keep_standard_input
from keras_addnorm.runs.trained_run import TrainedRun, load_run
from keras_addnorm.runs.weight_files import save_average
from keras_addnorm.training.guard import NonFiniteError


def train(
    config: RunConfig,
    directory: str | Path | RunDirectory,
    *,
    split: str | None = None,
    say: Callable[[str], None] = show,
    verbose: int | str = "auto",
) -> TrainedRun:
    """Trains a model from a configuration, or goes on where an earlier call stopped.

    Everything is written to the run directory as soon as it is there. A second call on it goes on
    at the last checkpoint, within an epoch or between two, with the optimiser state, random numbers
    and order of the data of a training that never stopped. A damaged checkpoint is named, and the
    one before it is taken. SIGTERM and Ctrl-C end the training with a checkpoint and with
    `training.Stopped`, a `KeyboardInterrupt`.

    Args:
        config: The configuration.
        directory: Where everything is written: a path, or a `RunDirectory`. Of several processes
            the first one writes, and all have to see what it wrote.
        split: What to train on, in place of the configuration's `split`.
        say: Takes lines for the user.
        verbose: What `keras.Model.fit` prints.

    Returns:
        The run, its model with the weights to translate with.

    Raises:
        UserError: If the configuration, the data or the devices cannot be used, or the directory
            holds a run of other data, another tokeniser or another model, weights without a
            checkpoint to go on from, or a damaged file.
    """
    directory = RunDirectory.of(directory)
    if split is not None:
        config = config.replace({"split": split})
    # What settings and directory tell is checked before anything is read or written; `prepare`
    # checks the tokenizers, the batches and the disk.
    directory.require_config_of_parts()
    directory.check(directory.config, directory.log, directory.standard_input)
    require_place_to_go_on(directory)
    config = keep_standard_input(config, directory)
    devices = require_trainable(config, directory)
    if not is_first():
        say, verbose = _silence, 0
    with _alone_in(directory), computing_in(config.training.precision), devices.scope():
        prepared = prepare(config, directory, devices, say)
        callbacks = fit(prepared, verbose)
        finish(prepared, callbacks)
    return load_run(directory)


def fit(prepared: Prepared, verbose: int | str = "auto") -> TrainingCallbacks:
    """Trains until the last epoch, the end of the patience, or a request to stop."""
    training, state, epochs = prepared.config.training, prepared.state, prepared.course.epochs
    callbacks = training_callbacks(prepared, says_how_far=verbose == 2)
    # Each of several processes would stop at another batch.
    alone = distribution.process_count() == 1
    is_done = has_stopped(state, training) or state.epoch >= epochs
    if not is_done:
        _withdraw_card(prepared)
    if training.jit_compile and state.epoch < epochs:
        prepared.say("The first batch of each length is compiled, which takes a while once.")
    ends = [epochs]
    if isinstance(prepared.training_data, keras.utils.PyDataset) and state.batch:
        # Keras cannot go on behind an epoch of these that is cut short: it is a `fit` of its own.
        ends = sorted({state.epoch + 1, epochs})
    start = epochs if is_done else state.epoch
    with callbacks.stop_request.listening() if alone else contextlib.nullcontext():
        try:
            for end in ends:
                prepared.model.fit(
                    prepared.training_data,
                    validation_data=prepared.validation_data,
                    initial_epoch=start,
                    epochs=end,
                    verbose=verbose,
                    shuffle=False,  # The data set shuffles itself; Keras warns when asked to.
                    callbacks=callbacks.in_order,
                )
                if prepared.model.stop_training:
                    break
                start = max(start, end)
        finally:  # A training that is stopped shows its epochs, too.
            callbacks.recorder.draw_curves()
    return callbacks


def _withdraw_card(prepared: Prepared) -> None:
    """Removes the card of a distillation: this training makes other weights than it is about."""
    card = prepared.directory.card
    if is_first() and card.exists():
        card.unlink()
        prepared.say(
            f"The card {card} was about the weights so far, and is removed. keras-addnorm distill "
            f"{prepared.directory.path} writes it anew when it is through."
        )


def finish(prepared: Prepared, callbacks: TrainingCallbacks) -> None:
    """Writes the average of the last epochs' weights, if asked for, and says how it went."""
    last, directory = prepared.config.training.average_last, prepared.directory
    recorder = callbacks.recorder
    with distribution.first_before_the_others("everything is written"):
        if not is_first():
            return
        damaged = None
        if last > 1 and (paths := callbacks.checkpoints.paths):
            damaged = _save_average(paths[-last:], directory)
        if last == 1:
            directory.manifest.forget(directory.averaged_weights)
            directory.averaged_weights.unlink(missing_ok=True)
        if best := recorder.best.epochs(recorder.rows):
            prepared.say(summary(directory, recorder.rows, best[0], prepared.report))
        if damaged is not None:
            raise UserError(
                "The training is done, and the best weights are written. The mean of the last "
                f"{last} epochs is not: {damaged} The same command takes it then."
            ) from damaged


def _save_average(paths: Sequence[Path], directory: RunDirectory) -> DamagedFileError | None:
    """Writes the mean of checkpoints, or returns what is wrong with one of them."""
    try:
        with directory.manifest.rewriting(directory.averaged_weights):
            save_average(paths, directory.averaged_weights, verify=directory.verify)
    except DamagedFileError as error:
        return error
    return None


@contextlib.contextmanager
def _alone_in(directory: RunDirectory) -> Iterator[None]:
    """Locks and cleans the directory; turns what a user can mend into a `UserError`."""
    lock = directory.locked() if is_first() else contextlib.nullcontext()
    with lock, system_errors_as_user_errors(directory.path):
        try:
            if is_first():
                directory.remove_leftovers()
            yield
        except (NonFiniteError, DamagedFileError) as error:
            raise UserError(str(error)) from error


def _silence(line: str) -> None:
    """Says nothing, for processes other than the first."""
