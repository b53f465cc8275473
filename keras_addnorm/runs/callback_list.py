"""The callbacks of a training, in their order."""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import dataclass

import keras

from keras_addnorm.data.strings import string_pairs
from keras_addnorm.decoding import Search, translate
from keras_addnorm.diagnostics import ResidualMonitor
from keras_addnorm.distribution import is_first
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs.callbacks import BestEpochs, MovingAverage, ProgressLines, RunRecorder
from keras_addnorm.runs.choices import BEST_METRICS
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.prepare import Prepared
from keras_addnorm.runs.progress import epoch_line
from keras_addnorm.runs.resuming import last_checkpoint
from keras_addnorm.runs.settings import TrainingConfig
from keras_addnorm.runs.text_data import digest_of_tokenizers
from keras_addnorm.training import StopRequest, TranslationScore
from keras_addnorm.training.guard import NonFiniteGuard
from keras_addnorm.training.resume import Checkpoints, TrainingPosition

# Enough for steady figures, few enough that watching them costs next to nothing.
_MONITORED_PAIRS = 16


@dataclass(frozen=True)
class TrainingCallbacks:
    """The callbacks of a training.

    Attributes:
        in_order: All that `fit` gets.
        recorder: The one that writes the log and the best weights.
        checkpoints: The one that writes checkpoints.
        stop_request: Takes the signals that end the training with a checkpoint.
    """

    in_order: list[keras.callbacks.Callback]
    recorder: RunRecorder
    checkpoints: Checkpoints
    stop_request: StopRequest


def training_callbacks(prepared: Prepared, *, says_how_far: bool = False) -> TrainingCallbacks:
    """Makes the callbacks of a training; `says_how_far` within an epoch where no bar does."""
    training, directory, say = prepared.config.training, prepared.directory, prepared.say
    best = BestEpochs(training.best_metric, BEST_METRICS[training.best_metric], training.keep_best)
    recorder = RunRecorder(directory, prepared.report, prepared.state.epoch, best, prepared.course)
    stopping = _early_stopping(training)
    position = TrainingPosition(
        prepared.epochs,
        prepared.course.batches,
        prepared.state,
        {"recorder": recorder, **stopping},
        prepared.epochs.plan,
        digest_of_tokenizers(directory.tokenizer),
    )
    guard = NonFiniteGuard(
        position,
        lambda epoch, batch: next(prepared.epochs.batches(epoch, batch)),
        directory.path,
        lambda: last_checkpoint(directory, say)[0],
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
    in_order = [
        position,
        guard,
        *_score(prepared),
        *_monitor(prepared),
        *_of_the_first(
            *_tensorboard(directory),
            recorder,
            *([ProgressLines(say, position, prepared.course)] if says_how_far else []),
            keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: say(
                    epoch_line(recorder.rows[-1], prepared.course, recorder.seconds_an_epoch())
                )
            ),
        ),
        *stopping.values(),
        *([MovingAverage()] if training.ema else []),
        # The last of all: what it writes says that an epoch is done and written down.
        *_of_the_first(checkpoints),
    ]
    return TrainingCallbacks(in_order, recorder, checkpoints, stop_request)


def _of_the_first(*callbacks: keras.callbacks.Callback) -> tuple[keras.callbacks.Callback, ...]:
    """Callbacks that write: of several processes, only the first has them."""
    return callbacks if is_first() else ()


def _tensorboard(directory: RunDirectory) -> list[keras.callbacks.Callback]:
    """What writes the curves for TensorBoard, which TensorFlow has to be installed for."""
    if importlib.util.find_spec("tensorflow") is None:
        return []
    return [keras.callbacks.TensorBoard(directory.tensorboard, write_graph=False)]


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


def _score(prepared: Prepared) -> list[keras.callbacks.Callback]:
    training, search = prepared.config.training, prepared.config.evaluation
    if not training.score_every:
        return []
    some = itertools.islice(string_pairs(prepared.validation_pairs), training.score_pairs)
    sources, references = zip(*some, strict=True)

    whole = prepared.config.search()
    greedy = Search(max_length=whole.max_length, splitting=whole.splitting)

    def translate_greedily(model: Seq2SeqTransformer, texts: list[str]) -> list[str]:
        return translate(
            model,
            prepared.tokenizers,
            texts,
            search=greedy,
            batch_size=search.batch_size,
        ).texts

    return [
        TranslationScore(
            sources,
            references,
            translate_greedily,
            every=training.score_every,
            language=prepared.config.target,
            tokenizer=search.bleu_tokenizer,
        )
    ]


def _monitor(prepared: Prepared) -> list[keras.callbacks.Callback]:
    every, directory = prepared.config.training.monitor_every, prepared.directory
    if not every:
        return []
    data = prepared.validation_data
    batch = data[0] if isinstance(data, keras.utils.PyDataset) else next(data.as_numpy_iterator())
    return [
        ResidualMonitor(
            keras.tree.map_structure(lambda array: array[:_MONITORED_PAIRS], batch),
            every=every,
            csv=directory.residuals,
            tensorboard=directory.tensorboard / "residuals",
        )
    ]
