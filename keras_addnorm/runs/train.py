"""Trains a run, or goes on with one."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras

from keras_addnorm import distribution
from keras_addnorm.data import SubwordSampling, TokenizerPair, make_training_dataset
from keras_addnorm.data.tokenizer import string_pairs
from keras_addnorm.decoding import translate
from keras_addnorm.diagnostics import ResidualMonitor
from keras_addnorm.distribution import Devices, is_first
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs.build import (
    TrainedRun,
    compile_model,
    go_on_with_learning_rate,
    left_out_lines,
    load_or_train_tokenizers,
    load_pairs,
    load_run,
    model_config,
    save_model_config,
)
from keras_addnorm.runs.callbacks import BestEpochs, MovingAverage, RunRecorder, save_average
from keras_addnorm.runs.checks_before_training import (
    require_consistent,
    require_room,
    require_same_run,
    require_shareable_batches,
    require_shareable_model,
    require_start,
    usable_devices,
)
from keras_addnorm.runs.data_check import DataCheck
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import UserError, as_user_errors
from keras_addnorm.runs.progress import epoch_line, summary
from keras_addnorm.runs.settings import BEST_METRICS, PRECISIONS, RunConfig, TrainingConfig
from keras_addnorm.training import StopRequest, TranslationScore
from keras_addnorm.training.guard import NonFiniteError, NonFiniteGuard
from keras_addnorm.training.resume import (
    Checkpoints,
    TrainingPosition,
    TrainingState,
    build,
    load_checkpoint,
    newest_checkpoint,
)

# Enough for steady figures, few enough that watching them costs next to nothing.
_MONITORED_PAIRS = 16


def train(
    config: RunConfig,
    directory: RunDirectory,
    *,
    split: str = "train",
    say: Callable[[str], None] = print,
    verbose: int | str = "auto",
) -> TrainedRun:
    """Trains a model from a configuration, or goes on where an earlier call stopped.

    Everything is written to the run directory as it comes. Called again on the same directory, the
    training goes on at its last checkpoint, inside an epoch or between two, with the same optimiser
    state, the same random numbers and the same order of the data as if it had never stopped. A
    checkpoint that is damaged is named and left out for the one before it. SIGTERM and Ctrl-C end
    the training with a checkpoint, and with the `KeyboardInterrupt` `training.Stopped`.

    Args:
        config: The configuration.
        directory: Where everything is written. Of several processes the first one writes, and all
            have to see what it wrote.
        split: The training pairs, such as `train` or `train[:10%]`.
        say: Takes lines for the user.
        verbose: What `keras.Model.fit` prints.

    Returns:
        The run, its model with the weights to translate with.

    Raises:
        UserError: If the configuration, the data or the devices cannot be used, or the directory
            holds a run of other data, another tokeniser or another model.
    """
    require_same_run(config, directory)
    require_consistent(config.training)
    require_start(config, directory)
    devices = usable_devices(config.training)
    if not is_first():
        say, verbose = _silence, 0
    with directory.locked() if is_first() else contextlib.nullcontext():
        try:
            if is_first():
                directory.remove_leftovers()
            with _computing_in(config.training.precision), devices.scope():
                _train(config, directory, devices, split, say, verbose)
        except NonFiniteError as error:
            raise UserError(str(error)) from error
        except UserError:
            raise
        except Exception as error:
            if not _is_full_disk(error):
                raise
            raise UserError(
                f"The disk of {str(directory.path)!r} is full ({error}). The checkpoints written "
                "so far are whole: make room, and the same command goes on."
            ) from error
    return load_run(directory)


def _train(
    config: RunConfig,
    directory: RunDirectory,
    devices: Devices,
    split: str,
    say: Callable[[str], None],
    verbose: int | str,
) -> None:
    training = config.training
    with _config_for_resuming(config, directory):
        # What has to be prepared on the disk, one process prepares.
        with distribution.first_before_the_others("data"):
            pairs = {
                "train": load_pairs(config, split),
                "validation": load_pairs(config, "validation"),
            }
            tokenizers = load_or_train_tokenizers(config, directory, pairs["train"])
        # Not before: what the data preparation draws must not decide about the first weights.
        keras.utils.set_random_seed(training.seed)
        chosen_model = model_config(config, tokenizers)
        require_shareable_model(chosen_model, devices)
        model = Seq2SeqTransformer(chosen_model)
    if is_first():
        directory.write_config(config)
        save_model_config(model.config, directory)

    datasets = _datasets(config, tokenizers, pairs, devices)
    report = datasets["train"].report
    require_shareable_batches(report, devices)
    compile_model(model, training, report.batches, devices)
    checkpoint, state = _last_checkpoint(directory, say)
    plan = datasets["train"].epochs.plan
    found, state = state, state.with_batches(report.batches, plan)
    if state is not found:
        say(_starting_anew(found))
    some_batch = next(datasets["train"].epochs.batches(state.epoch))
    if devices.sums_replicas:
        # Keras would do it itself, with the mean of the replicas' ids, which are no whole numbers.
        build(model, some_batch)
    if checkpoint is not None:
        load_checkpoint(model, checkpoint, some_batch)
        left = (training.epochs - state.epoch) * report.batches - state.batch
        go_on_with_learning_rate(model, training, report.batches, left)
        say(_going_on(state, report.batches, training))
    elif training.start_from:
        weights = RunDirectory(training.start_from).weights()
        model.load_weights(weights)
        say(f"Starting from the weights in {weights}.")
    say(f"Training data: {report}.")
    lines = left_out_lines(config, split)
    for bad in (one for one in lines if one.left_out):
        say(f"Warning: {bad}.")
    train_pairs, held_out = (string_pairs(pairs[name]) for name in ("train", "validation"))
    check = DataCheck.of(train_pairs, held_out, report, lines)
    say(f"Checked the training pairs: {check}.")
    if training.strict:
        check.require_clean()
    say(f"Validation data: {datasets['validation'].report}.")
    say(f"Model: {model.count_params():,} weights, {tokenizers.target.vocabulary_size:,} pieces.")
    say(f"Devices: {devices}.")
    require_room(directory, model, training)

    best = BestEpochs(training.best_metric, BEST_METRICS[training.best_metric], training.keep_best)
    recorder = RunRecorder(directory, report, state.epoch, best)
    stopping = _early_stopping(training)
    position = TrainingPosition(
        datasets["train"].epochs, report.batches, state, {"recorder": recorder, **stopping}, plan
    )
    guard = NonFiniteGuard(
        position,
        lambda epoch, batch: next(datasets["train"].epochs.batches(epoch, batch)),
        directory.path,
        lambda: _last_checkpoint(directory, say)[0],
    )
    stop_request = StopRequest()
    checkpoints = Checkpoints(
        directory.checkpoints,
        position,
        keep=max(training.keep_last, training.average_last),
        every_batches=training.checkpoint_batches,
        every_minutes=training.checkpoint_minutes,
        before=guard.check_weights,
        stop_request=stop_request,
    )
    callbacks = [
        position,
        guard,
        *_score_callbacks(config, tokenizers, pairs["validation"]),
        *_monitor_callbacks(config, datasets["validation"], directory),
        *_of_the_first(
            keras.callbacks.TensorBoard(directory.tensorboard, write_graph=False),
            recorder,
            keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: say(epoch_line(recorder.rows, training.epochs))
            ),
        ),
        *stopping.values(),
        *([MovingAverage()] if training.ema else []),
        # The last of all: what it writes says that an epoch is done and written down.
        *_of_the_first(checkpoints),
    ]
    # Each of several processes would stop at another batch.
    alone = distribution.process_count() == 1
    with stop_request.listening() if alone else contextlib.nullcontext():
        model.fit(
            datasets["train"],
            validation_data=datasets["validation"],
            initial_epoch=training.epochs if _has_stopped(state, training) else state.epoch,
            epochs=training.epochs,
            verbose=verbose,
            shuffle=False,  # The data set shuffles itself; Keras warns when it is asked to.
            callbacks=callbacks,
        )
    with distribution.first_before_the_others("everything is written"):
        if not is_first():
            return
        if training.average_last > 1 and checkpoints.paths:
            save_average(checkpoints.paths[-training.average_last :], directory.averaged_weights)
        if training.average_last == 1:
            directory.averaged_weights.unlink(missing_ok=True)
        if chosen := best.epochs(recorder.rows):
            say(summary(directory, recorder.rows, chosen[0], report))


def _is_full_disk(error: BaseException) -> bool:
    """Whether a full disk was the cause: HDF5 and TensorFlow have errors of their own for it."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    if any(os.strerror(code) in str(error) for code in (errno.ENOSPC, errno.EDQUOT)):
        return True
    # A file that cannot be closed either hides the first error behind its own.
    before = error.__cause__ or error.__context__
    return before is not None and _is_full_disk(before)


def _silence(line: str) -> None:
    """What a process says that is not the first."""


def _of_the_first(*callbacks: keras.callbacks.Callback) -> tuple[keras.callbacks.Callback, ...]:
    """Callbacks that write: of several processes, only the first has them."""
    return callbacks if is_first() else ()


@contextlib.contextmanager
def _computing_in(precision: str) -> Iterator[None]:
    """Keras' policy for the layers that are made meanwhile."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(PRECISIONS[precision])
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _last_checkpoint(
    directory: RunDirectory, say: Callable[[str], None]
) -> tuple[Path | None, TrainingState]:
    def name(path: Path, error: Exception) -> None:
        say(f"Warning: the checkpoint {path} is damaged ({error}); taking the one before it.")

    return newest_checkpoint(directory.checkpoints, name) or (None, TrainingState(epoch=0))


def _going_on(state: TrainingState, batches: int, training: TrainingConfig) -> str:
    if _has_stopped(state, training):
        return (
            f"Stopped early after epoch {state.epoch}: {training.best_metric} did not get better "
            f"for {training.early_stopping} epochs. A larger --early-stopping goes on."
        )
    inside = f" and {state.batch:,} of {batches:,} batches" if state.batch else ""
    return f"Going on after epoch {state.epoch} of {training.epochs}{inside}."


def _starting_anew(found: TrainingState) -> str:
    return (
        f"Warning: the checkpoint is of {found.batch:,} batches into epoch {found.epoch + 1}, but "
        "the training data are others or divided otherwise now (texts, seed, buckets, tokens per "
        "batch): the epoch starts anew with the weights of the checkpoint. To go on inside of it, "
        "stop and give the settings and texts as they were."
    )


def _early_stopping(training: TrainingConfig) -> dict[str, keras.callbacks.EarlyStopping]:
    if not training.early_stopping:
        return {}
    return {
        "early_stopping": keras.callbacks.EarlyStopping(
            monitor=training.best_metric,
            mode="max" if BEST_METRICS[training.best_metric] else "min",
            patience=training.early_stopping,
        )
    }


def _has_stopped(state: TrainingState, training: TrainingConfig) -> bool:
    """Whether an earlier command stopped early, and would do so again."""
    waited = state.callbacks.get("early_stopping", {}).get("wait", 0)
    return bool(training.early_stopping) and waited >= training.early_stopping


@contextlib.contextmanager
def _config_for_resuming(config: RunConfig, directory: RunDirectory) -> Iterator[None]:
    """Writes a new run's configuration before what takes long; what is refused does not stay."""
    if not is_first() or directory.config.exists():
        yield
        return
    directory.write_config(config)
    try:
        yield
    except Exception:
        directory.config.unlink()
        raise


def _datasets(
    config: RunConfig, tokenizers: TokenizerPair, pairs: dict[str, Any], devices: Devices
) -> dict[str, Any]:
    training = config.training
    common: dict[str, Any] = {
        "row_weights": devices.sums_replicas,
        "row_share": devices.row_share,
        **dataclasses.asdict(training.bucketing),
        "repeats": 2 if training.r_drop else 1,
    }
    alpha = training.subword_sampling
    with as_user_errors():
        sampling = SubwordSampling(alpha) if alpha else None
        return {
            "train": make_training_dataset(
                pairs["train"],
                tokenizers,
                shuffle_seed=training.seed,
                batches_per_update=training.batches_per_update,
                sampling=sampling,
                **common,
            ),
            "validation": make_training_dataset(pairs["validation"], tokenizers, **common),
        }


def _monitor_callbacks(
    config: RunConfig, validation: Any, directory: RunDirectory
) -> list[keras.callbacks.Callback]:
    if not config.training.monitor_every:
        return []
    batch = next(validation.as_numpy_iterator())
    return [
        ResidualMonitor(
            keras.tree.map_structure(lambda array: array[:_MONITORED_PAIRS], batch),
            every=config.training.monitor_every,
            csv=directory.residuals,
            tensorboard=directory.tensorboard / "residuals",
        )
    ]


def _score_callbacks(
    config: RunConfig, tokenizers: TokenizerPair, validation: Any
) -> list[keras.callbacks.Callback]:
    if not config.training.score_every:
        return []
    some = itertools.islice(string_pairs(validation), config.training.score_pairs)
    sources, references = zip(*some, strict=True)

    def translate_greedily(model: Seq2SeqTransformer, texts: list[str]) -> list[str]:
        return translate(
            model,
            tokenizers,
            texts,
            max_length=config.evaluation.max_length,
            batch_size=config.evaluation.batch_size,
        ).texts

    return [
        TranslationScore(sources, references, translate_greedily, every=config.training.score_every)
    ]
