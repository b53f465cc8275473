"""From a configuration to its parts: data, tokenisers, model, optimiser."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from keras_addnorm.basics import atomic_file
from keras_addnorm.data import (
    LineReport,
    Tokenizer,
    TokenizerPair,
    line_reports,
    load_translation,
)
from keras_addnorm.data.tokenizer import string_pairs
from keras_addnorm.decoding import Lexicon, Shortlist
from keras_addnorm.distribution import ONE_DEVICE, Devices
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.runs.config import CLIPS, RunConfig, TrainingConfig
from keras_addnorm.runs.directory import RunDirectory, write_text
from keras_addnorm.runs.errors import UserError, as_user_errors, unknown_name
from keras_addnorm.training import (
    Adam,
    Cooldown,
    InverseSquareRootSchedule,
    MaskedAccuracy,
    MaskedSparseCategoricalCrossentropy,
    NoamSchedule,
    Perplexity,
    RDropCrossentropy,
    ScheduleOfUpdates,
)

_DERIVED = {"source_vocabulary_size", "target_vocabulary_size"}


def load_pairs(config: RunConfig, split: str) -> Any:
    """Loads the sentence pairs of a split.

    Args:
        config: The run's configuration.
        split: A split's name, sub-splits such as `train[:10%]` included.

    Returns:
        A `tf.data.Dataset` of `(source_text, target_text)`.

    Raises:
        UserError: If the data or the split does not exist.
    """
    with as_user_errors():
        return load_translation(
            config.data, source=config.source, target=config.target, split=split
        )


def load_texts(config: RunConfig, split: str) -> tuple[list[str], list[str]]:
    """Loads the texts of a split.

    Args:
        config: The run's configuration.
        split: As for `load_pairs`.

    Returns:
        The sources, and a reference for each.

    Raises:
        UserError: If the data or the split does not exist, or the split is empty.
    """
    pairs = list(string_pairs(load_pairs(config, split)))
    if not pairs:
        raise UserError(f"The split {split!r} of {config.data!r} has no sentence pair.")
    sources, references = zip(*pairs, strict=True)
    return list(sources), list(references)


def left_out_lines(config: RunConfig, split: str) -> list[LineReport]:
    """Counts the lines that `load_pairs` never gives, because they are of no use.

    Args:
        config: The run's configuration.
        split: As for `load_pairs`; each split in it is counted as a whole.

    Returns:
        The report of each split.

    Raises:
        UserError: If the data or the split does not exist.
    """
    with as_user_errors():
        reports = line_reports(config.data, source=config.source, target=config.target, split=split)
    return list(reports.values())


def load_or_train_tokenizers(
    config: RunConfig, directory: RunDirectory, pairs: Any
) -> TokenizerPair:
    """Returns the run's tokenisers, trained on its training pairs the first time.

    Where a killed process has left none, or one of two, they are trained again. A run that starts
    from another one has its tokenisers.

    Args:
        config: The run's configuration.
        directory: Where they are kept.
        pairs: The training pairs.

    Returns:
        The tokenisers.
    """
    if directory.has_tokenizers():
        with as_user_errors():
            return TokenizerPair.load(directory.tokenizer)
    with as_user_errors():
        if config.training.start_from:
            tokenizers = TokenizerPair.load(RunDirectory(config.training.start_from).tokenizer)
        else:
            tokenizers = TokenizerPair.train(pairs, **dataclasses.asdict(config.tokenizer))
    tokenizers.save(directory.tokenizer)
    return tokenizers


def model_config(config: RunConfig, tokenizers: TokenizerPair) -> Seq2SeqConfig:
    """Makes the model's configuration.

    Two things follow from the rest unless the configuration says otherwise: a joint vocabulary has
    one embedding table, and there is a position for every token of the longest training pair.

    Args:
        config: The run's configuration.
        tokenizers: Which give the vocabulary sizes.

    Returns:
        The model's configuration.

    Raises:
        UserError: If the preset or an override is unknown or wrong.
    """
    known = {field.name for field in dataclasses.fields(Seq2SeqConfig)} - _DERIVED
    for name in config.model.overrides:
        if name not in known:
            raise unknown_name("setting", f"model.{name}", {f"model.{key}" for key in known})
    settings = {
        "share_embeddings": tokenizers.is_joint,
        "max_length": max(256, config.training.bucketing.longest),
        **config.model.overrides,
    }
    with as_user_errors():
        return Seq2SeqConfig.preset(
            config.model.preset,
            source_vocabulary_size=tokenizers.source.vocabulary_size,
            target_vocabulary_size=tokenizers.target.vocabulary_size,
            **settings,
        )


def _inverse_square_root(training: TrainingConfig, hidden_dim: int, total_steps: int) -> Any:
    return InverseSquareRootSchedule(training.peak_learning_rate, training.warmup_steps)


def _noam(training: TrainingConfig, hidden_dim: int, total_steps: int) -> Any:
    return NoamSchedule(hidden_dim, training.warmup_steps, training.peak_learning_rate)


def _cosine(training: TrainingConfig, hidden_dim: int, total_steps: int) -> Any:
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        decay_steps=max(1, total_steps - training.warmup_steps),
        warmup_target=training.peak_learning_rate,
        warmup_steps=training.warmup_steps,
    )


def _constant(training: TrainingConfig, hidden_dim: int, total_steps: int) -> Any:
    return training.peak_learning_rate


# The names are those of `runs.config.SCHEDULES`, which must not import Keras.
_SCHEDULES: dict[str, Callable[[TrainingConfig, int, int], Any]] = {
    "inverse_square_root": _inverse_square_root,
    "noam": _noam,
    "cosine": _cosine,
    "constant": _constant,
}


def _learning_rate(
    training: TrainingConfig, hidden_dim: int, steps_per_epoch: int, total_steps: int
) -> Any:
    """The schedule, or the constant; steps are batches, of which some may share an update."""
    together = training.batches_per_update
    updates = total_steps // together
    schedule = _SCHEDULES[training.schedule](training, hidden_dim, updates)
    if training.cooldown_epochs:
        last = steps_per_epoch * training.cooldown_epochs // together
        schedule = Cooldown(schedule, updates, min(last, updates))
    if together > 1 and not isinstance(schedule, float):
        schedule = ScheduleOfUpdates(schedule, together)
    return schedule


def go_on_with_learning_rate(
    model: Seq2SeqTransformer, training: TrainingConfig, steps_per_epoch: int, steps_left: int
) -> None:
    """Gives a loaded optimiser the rate that the settings say from here on.

    A schedule that ends with the training ends when it does, however many batches the epochs had
    that are over.

    Args:
        model: A compiled model, its optimiser as the checkpoint has it.
        training: The training's settings.
        steps_per_epoch: Batches of an epoch from now on.
        steps_left: Batches until the end of the training.
    """
    # Of batches; `iterations` counts updates where several share one.
    done = int(keras.ops.convert_to_numpy(model.optimizer._iterations))
    total_steps = done + steps_left
    model.optimizer.learning_rate = _learning_rate(
        training, model.config.hidden_dim, steps_per_epoch, total_steps
    )


def compile_model(
    model: Seq2SeqTransformer,
    training: TrainingConfig,
    steps_per_epoch: int,
    devices: Devices = ONE_DEVICE,
) -> None:
    """Compiles a model for training as the configuration says.

    Args:
        model: The model.
        training: The training's settings.
        steps_per_epoch: Batches of an epoch, for schedules that end with the training.
        devices: Where it is trained.
    """
    together = training.batches_per_update
    total_steps = steps_per_epoch * training.epochs
    rate = _learning_rate(training, model.config.hidden_dim, steps_per_epoch, total_steps)
    model.compile(
        # Under a policy of float16 Keras scales the loss by itself: no setting of ours.
        optimizer=Adam(
            rate,
            beta_2=training.beta_2,
            epsilon=training.epsilon,
            use_ema=training.ema > 0,
            ema_momentum=training.ema,
            gradient_accumulation_steps=together if together > 1 else None,
            **{CLIPS[training.clip_by]: training.clipnorm},
        ),
        loss=_loss(training, weighted_sum=together > 1 or devices.sums_replicas),
        metrics=[MaskedAccuracy(), Perplexity()],
        jit_compile=training.jit_compile and devices.compiles,
    )


def _loss(training: TrainingConfig, weighted_sum: bool) -> keras.losses.Loss:
    common: dict[str, Any] = {
        "label_smoothing": training.label_smoothing,
        "weighted_sum": weighted_sum,
    }
    if training.r_drop:
        return RDropCrossentropy(training.r_drop, **common)
    return MaskedSparseCategoricalCrossentropy(**common)


@dataclass(frozen=True)
class TrainedRun:
    """What a run directory holds once it is trained.

    Attributes:
        directory: Where it is.
        config: Its configuration.
        tokenizers: Its tokenisers.
        model: The model with its best (or averaged) weights.
    """

    directory: RunDirectory
    config: RunConfig
    tokenizers: TokenizerPair
    model: Seq2SeqTransformer

    @functools.cached_property
    def shortlist(self) -> Shortlist | None:
        """The target tokens that its searches weigh.

        Its lexicon is estimated from the training pairs the first time.

        Returns:
            The shortlist; `None` for all tokens.

        Raises:
            UserError: If there are fewer tokens than are asked for, or no training pairs, or the
                directory holds another model's lexicon.
        """
        if not self.config.evaluation.shortlist:
            return None
        with as_user_errors():
            if not self.directory.lexicon.exists():
                lexicon = _lexicon(self.tokenizers, load_pairs(self.config, "train"))
                with atomic_file(self.directory.lexicon) as temporary:
                    lexicon.save(temporary)
            lexicon = Lexicon.load(self.directory.lexicon)
            shortlist = Shortlist(lexicon, self.config.evaluation.shortlist)
            shortlist.check(self.model.config)
        return shortlist


def _lexicon(tokenizers: TokenizerPair, pairs: Any) -> Lexicon:
    end = [Tokenizer.end_id]
    return Lexicon.estimate(
        (
            (tokenizers.source.encode(source) + end, tokenizers.target.encode(target) + end)
            for source, target in string_pairs(pairs)
        ),
        source_vocabulary_size=tokenizers.source.vocabulary_size,
        target_vocabulary_size=tokenizers.target.vocabulary_size,
    )


def load_run(directory: RunDirectory) -> TrainedRun:
    """Loads a trained run.

    Args:
        directory: The run directory.

    Returns:
        Its parts.

    Raises:
        UserError: If it is not a run directory, or nothing has been trained in it yet.
    """
    config = directory.read_config()
    weights = directory.weights()
    with as_user_errors():
        tokenizers = TokenizerPair.load(directory.tokenizer)
        model = Seq2SeqTransformer(
            Seq2SeqConfig.from_json(directory.model.read_text(encoding="utf-8"))
        )
        model.load_weights(weights)
    return TrainedRun(directory, config, tokenizers, model)


def save_model_config(config: Seq2SeqConfig, directory: RunDirectory) -> None:
    """Writes `model.json`.

    Args:
        config: The model's configuration.
        directory: The run.
    """
    write_text(directory.model, config.to_json() + "\n")
