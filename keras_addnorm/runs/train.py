"""Trains a run, or goes on with one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import keras

from keras_addnorm.data import TokenizerPair, make_training_dataset
from keras_addnorm.data.tokenizer import string_pairs
from keras_addnorm.decoding import translate
from keras_addnorm.diagnostics import ResidualMonitor
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs.build import (
    TrainedRun,
    as_user_errors,
    compile_model,
    load_or_train_tokenizers,
    load_pairs,
    load_run,
    model_config,
    save_model_config,
)
from keras_addnorm.runs.callbacks import EpochSeeds, RunRecorder, save_weights
from keras_addnorm.runs.config import RunConfig
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import UserError
from keras_addnorm.training import LastCheckpoints, TranslationScore, average_weights

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
    training goes on at the next epoch with the same optimiser state, the same random numbers and
    the same order of the data as if it had never stopped.

    Args:
        config: The configuration.
        directory: Where everything is written.
        split: The training pairs, such as `train` or `train[:10%]`.
        say: Takes lines for the user.
        verbose: What `keras.Model.fit` prints.

    Returns:
        The run, its model with the weights to translate with.

    Raises:
        UserError: If the configuration or the data cannot be used, or the directory holds a run of
            other data, another tokeniser or another model.
    """
    _check_same_run(config, directory)
    pairs = {
        "train": load_pairs(config, split),
        "validation": load_pairs(config, "validation"),
    }
    tokenizers = load_or_train_tokenizers(config, directory, pairs["train"])
    # Not before: what the data preparation draws must not decide about the first weights.
    keras.utils.set_random_seed(config.training.seed)
    model = Seq2SeqTransformer(model_config(config, tokenizers))
    directory.write_config(config)
    save_model_config(model.config, directory)

    done, checkpoint = directory.last_checkpoint() or (0, None)
    datasets = _datasets(config, tokenizers, pairs, done)
    report = datasets["train"].report
    compile_model(model, config.training, report.batches)
    if checkpoint is not None:
        model.optimizer.build(model.trainable_variables)
        model.load_weights(checkpoint)
        say(f"Going on after epoch {done} of {config.training.epochs}.")
    say(f"Training data: {report}.")
    say(f"Validation data: {datasets['validation'].report}.")
    say(f"Model: {model.count_params():,} weights, {tokenizers.target.vocabulary_size:,} pieces.")

    last = LastCheckpoints(directory.checkpoints, keep=config.training.average_last)
    model.fit(
        datasets["train"],
        validation_data=datasets["validation"],
        initial_epoch=done,
        epochs=config.training.epochs,
        verbose=verbose,
        shuffle=False,  # The data set shuffles itself; Keras warns when it is asked to.
        callbacks=[
            EpochSeeds(),
            *_score_callbacks(config, tokenizers, pairs["validation"]),
            *_monitor_callbacks(config, datasets["validation"], directory),
            keras.callbacks.TensorBoard(directory.tensorboard, write_graph=False),
            RunRecorder(directory, report.source_tokens + report.target_tokens, done),
            # The last of all: what it writes says that an epoch is done and written down.
            last,
        ],
    )
    if config.training.average_last > 1 and last.paths:
        average_weights(model, last.paths)
        save_weights(model, directory.averaged_weights)
    return load_run(directory)


def _check_same_run(config: RunConfig, directory: RunDirectory) -> None:
    """A second command may train longer or otherwise, but on the same data with the same model."""
    if not directory.config.exists():
        return
    before, now = directory.read_config().to_dict(), config.to_dict()
    for key in ("data", "source", "target", "tokenizer", "model"):
        if before[key] != now[key]:
            raise UserError(
                f"{str(directory.path)!r} holds a run with another {key!r}. Expected "
                f"{before[key]!r}, received {now[key]!r}. Choose another --run-dir, or leave "
                "the setting as it was."
            )


def _datasets(
    config: RunConfig, tokenizers: TokenizerPair, pairs: dict[str, Any], first_epoch: int
) -> dict[str, Any]:
    training = config.training
    common: dict[str, Any] = {
        "tokens_per_batch": training.tokens_per_batch,
        "bucket_lengths": training.bucket_lengths,
    }
    with as_user_errors():
        return {
            "train": make_training_dataset(
                pairs["train"],
                tokenizers,
                shuffle_seed=training.seed,
                first_epoch=first_epoch,
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
