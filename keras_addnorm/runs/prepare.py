"""Everything that a training needs before its first step: checks, texts, model, data and place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from keras_addnorm import distribution
from keras_addnorm.data import (
    SubwordSampling,
    TokenizerPair,
    TrainingBatches,
    make_training_batches,
    make_training_dataset,
)
from keras_addnorm.data.epochs import Epochs
from keras_addnorm.data.loading import is_built_in
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.distribution import Devices, is_first
from keras_addnorm.models import Seq2SeqTransformer, enable_lora
from keras_addnorm.runs.checks_before_training import (
    require_room,
    require_shareable_batches,
    require_shareable_model,
)
from keras_addnorm.runs.data_check import DataCheck
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.optimization import about_smoothing, compile_model
from keras_addnorm.runs.resuming import early_config, place_to_go_on, resume_or_start
from keras_addnorm.runs.settings import RunConfig, TrainingConfig
from keras_addnorm.runs.student import load_teacher, run_alignments
from keras_addnorm.runs.text_data import (
    RunPairs,
    load_or_train_tokenizers,
    run_pairs,
)
from keras_addnorm.runs.trained_run import model_config, save_model_config
from keras_addnorm.runs.training_ids import TrainingIds, training_ids
from keras_addnorm.runs.updates import Course, about_cost, about_updates, with_warmup
from keras_addnorm.training.checkpoint_file import TrainingState


@dataclass(frozen=True)
class Prepared:
    """A training that is ready for its first step, or for the step after its last checkpoint.

    Attributes:
        config: Its configuration.
        directory: Where everything is written.
        say: Takes lines for the user.
        tokenizers: Its tokenizers.
        model: The model, compiled and loaded.
        training_data: The batches to train on.
        epochs: Their epochs.
        report: What a pass over the training pairs holds.
        course: How long the training is.
        validation_data: The batches to validate on.
        validation_pairs: Their texts.
        state: Where the training is.
    """

    config: RunConfig
    directory: RunDirectory
    say: Callable[[str], None]
    tokenizers: TokenizerPair
    model: Seq2SeqTransformer
    training_data: Any
    epochs: Epochs | TrainingBatches
    report: PipelineReport
    course: Course
    validation_data: Any
    validation_pairs: Iterable[Any]
    state: TrainingState


def prepare(
    config: RunConfig,
    directory: RunDirectory,
    devices: Devices,
    say: Callable[[str], None],
) -> Prepared:
    """Prepares a training, or the rest of one, and writes down what a second command needs.

    A `UserError` says that configuration, data, devices or disk cannot be used.
    """
    training = config.training
    with early_config(config, directory):
        checkpoint, found = place = place_to_go_on(directory, say)
        # One process prepares what has to be on the disk.
        with distribution.first_before_the_others("data"):
            pairs = run_pairs(config)
            for note in pairs.notes:
                say(note)
            digest = None if checkpoint is None else found.tokenizers
            tokenizers = load_or_train_tokenizers(config, directory, pairs.training, say, digest)
            chosen_model = model_config(config, tokenizers)
            require_shareable_model(chosen_model, devices)
            alignments = run_alignments(training, directory, tokenizers, pairs.training, say)
            ids = training_ids(config, directory, pairs, tokenizers, say)
        # Not before: what the data preparation draws must not decide about the first weights.
        keras.utils.set_random_seed(training.seed)
        model = Seq2SeqTransformer(chosen_model)
        if training.lora_rank:
            enable_lora(model, training.lora_rank)
        with as_user_errors():
            teacher = load_teacher(training, tokenizers, directory.verify)
    data, validation_data = _datasets(training, tokenizers, pairs, ids, alignments, devices)
    epochs, report = data.epochs, data.report
    require_shareable_batches(report, devices)
    config, about_warmup = with_warmup(config, directory, report)
    training = config.training
    compile_model(model, training, report.batches, devices, teacher)
    state = resume_or_start(model, training, directory, place, devices, epochs, report, say)
    if is_first():  # All that is there has been found to belong together.
        directory.write_config(config)
        save_model_config(model.config, directory)

    say(f"Training data: {report}.")
    for line in about_updates(training, report):
        say(line)
    if about_warmup is not None:
        say(about_warmup)
    _say_faults(config, ids, report, say)
    say(f"Validation data: {validation_data.report}.")
    pieces = tokenizers.target.vocabulary_size
    say(f"Model: {model.count_params():,} weights, {pieces:,} pieces.")
    say(about_cost(training, report, model.count_params()))
    for line in about_smoothing(training.label_smoothing, pieces):
        say(line)
    if model.vocabulary_chunk_size:
        say(f"Loss: reads {model.vocabulary_chunk_size:,} pieces at a time, not all.")
    if training.lora_rank:
        learned = sum(math.prod(weight.shape) for weight in model.trainable_weights)
        say(f"LoRA of rank {training.lora_rank}: {learned:,} of these learn.")
    say(f"Devices: {devices}.")
    require_room(directory, model, training)
    return Prepared(
        config=config,
        directory=directory,
        say=say,
        tokenizers=tokenizers,
        model=model,
        training_data=data,
        epochs=epochs,
        report=report,
        course=Course.of(training, report.batches),
        validation_data=validation_data,
        validation_pairs=pairs.validation,
        state=state,
    )


def _datasets(
    training: TrainingConfig,
    tokenizers: TokenizerPair,
    pairs: RunPairs,
    ids: TrainingIds,
    alignments: Sequence[Any] | None,
    devices: Devices,
) -> tuple[Any, Any]:
    """The batches to train on and to validate on, as this backend reads them fastest."""
    make: Callable[..., Any] = make_training_batches
    if keras.backend.backend() == "tensorflow":
        make = make_training_dataset
    common: dict[str, Any] = {
        "row_weights": devices.sums_replicas,
        "row_share": devices.row_share,
        **dataclasses.asdict(training.bucketing),
        "repeats": 2 if training.r_drop else 1,
    }
    alpha = training.subword_sampling
    with as_user_errors():
        data = make(
            ids.pairs,
            tokenizers,
            shuffle_seed=training.seed,
            batches_per_update=training.batches_per_update,
            steps_per_epoch=training.validate_every * training.batches_per_update or None,
            sampling=SubwordSampling(alpha) if alpha else None,
            alignments=alignments,
            **common,
        )
        return data, make(pairs.validation, tokenizers, **common)


def _say_faults(
    config: RunConfig,
    ids: TrainingIds,
    report: PipelineReport,
    say: Callable[[str], None],
) -> None:
    """Says what looks wrong with the training pairs; a strict training ends there."""
    for bad in (one for one in ids.lines if one.left_out):
        say(f"Warning: {bad}.")
    # Sentences made from templates differ by a word, whatever split they are in.
    expected = ("near_held_out",) if is_built_in(config.data) else ()
    check = DataCheck.of(ids.faults, report, ids.lines, expected)
    say(f"Checked the training pairs: {check}.")
    if config.training.strict:
        check.require_clean()
