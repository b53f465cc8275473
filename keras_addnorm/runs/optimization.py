"""The optimiser, learning rate and loss that the settings ask for."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_addnorm.distribution import ONE_DEVICE, Devices
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs.choices import CLIPS, PRECISIONS
from keras_addnorm.runs.settings import TrainingConfig
from keras_addnorm.runs.updates import Course
from keras_addnorm.training import (
    Adam,
    Cooldown,
    EightBitAdam,
    GuidedAlignment,
    InverseSquareRootSchedule,
    MaskedAccuracy,
    MaskedSparseCategoricalCrossentropy,
    NoamSchedule,
    Perplexity,
    RDropCrossentropy,
    ScheduleOfUpdates,
    TokenDistillation,
)


def _inverse_square_root(training: TrainingConfig, hidden_dim: int, total_steps: int) -> Any:
    return InverseSquareRootSchedule(training.peak_learning_rate, training.warmup(total_steps))


def _noam(training: TrainingConfig, hidden_dim: int, total_steps: int) -> Any:
    return NoamSchedule(hidden_dim, training.warmup(total_steps), training.peak_learning_rate)


def _cosine(training: TrainingConfig, hidden_dim: int, total_steps: int) -> Any:
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        decay_steps=max(1, total_steps - training.warmup(total_steps)),
        warmup_target=training.peak_learning_rate,
        warmup_steps=training.warmup(total_steps),
    )


def _constant(training: TrainingConfig, hidden_dim: int, total_steps: int) -> Any:
    return training.peak_learning_rate


# The ONE table of schedules.
SCHEDULES: dict[str, Callable[[TrainingConfig, int, int], Any]] = {
    "inverse_square_root": _inverse_square_root,
    "noam": _noam,
    "cosine": _cosine,
    "constant": _constant,
}


def _adam(training: TrainingConfig, rate: Any, **common: Any) -> keras.optimizers.Optimizer:
    of_run = EightBitAdam if training.eight_bits else Adam
    return of_run(rate, beta_2=training.beta_2, epsilon=training.epsilon, **common)


def _muon(training: TrainingConfig, rate: Any, **common: Any) -> keras.optimizers.Optimizer:
    return keras.optimizers.Muon(
        rate,
        adam_beta_2=training.beta_2,
        epsilon=training.epsilon,
        # As with Adam, weights do not decay.
        weight_decay=None,
        adam_weight_decay=None,
        # Left to Adam: all but kernels (matrices of schemes, LoRA's), and the last layer.
        exclude_layers=[r"/(?!kernel$)[^/]*$", "^vocabulary_projection/"],
        **common,
    )


# The ONE table of optimisers.
OPTIMIZERS: dict[str, Callable[..., keras.optimizers.Optimizer]] = {"adam": _adam, "muon": _muon}


def _learning_rate(
    training: TrainingConfig, hidden_dim: int, steps_per_epoch: int, total_steps: int
) -> Any:
    """The schedule, or the constant. Steps are batches, of which several may share an update."""
    together = training.batches_per_update
    updates = total_steps // together
    schedule = SCHEDULES[training.schedule](training, hidden_dim, updates)
    if training.cooldown_epochs:
        last = steps_per_epoch * training.cooldown_epochs // together
        schedule = Cooldown(schedule, updates, min(last, updates))
    if together > 1 and not isinstance(schedule, float):
        schedule = ScheduleOfUpdates(schedule, together)
    return schedule


def go_on_with_learning_rate(
    model: Seq2SeqTransformer, training: TrainingConfig, steps_per_epoch: int, steps_left: int
) -> None:
    """Gives a loaded optimiser the learning rate of the settings from here on.

    A schedule that ends with the training then ends with it, however many batches the finished
    epochs had.
    """
    # Of batches; `iterations` counts updates where several share one. Of the two optimisers of
    # float16, the inner one counts.
    optimizer: Any = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    done = int(keras.ops.convert_to_numpy(optimizer._iterations))
    total_steps = done + steps_left
    model.optimizer.learning_rate = _learning_rate(
        training, model.config.hidden_dim, steps_per_epoch, total_steps
    )


def compile_model(
    model: Seq2SeqTransformer,
    training: TrainingConfig,
    steps_per_epoch: int,
    devices: Devices = ONE_DEVICE,
    teacher: Seq2SeqTransformer | None = None,
) -> None:
    """Compiles a model for training as the configuration says, with a teacher if it has one."""
    together, pad_id = training.batches_per_update, model.config.pad_id
    total_steps = Course.of(training, steps_per_epoch).steps
    rate = _learning_rate(training, model.config.hidden_dim, steps_per_epoch, total_steps)
    weighted_sum = together > 1 or devices.sums_replicas
    guided, tau = training.guided_alignment, training.temperature
    model.compile(
        # Under a policy of float16 Keras scales the loss by itself: no setting of ours.
        optimizer=OPTIMIZERS[training.optimizer](
            training,
            rate,
            use_ema=training.ema > 0,
            ema_momentum=training.ema,
            gradient_accumulation_steps=together if together > 1 else None,
            **{CLIPS[training.clip_by]: training.clipnorm},
        ),
        loss=_loss(training, pad_id, weighted_sum),
        guided_alignment=GuidedAlignment(guided) if guided else None,
        distillation=None
        if teacher is None
        else TokenDistillation(teacher, training.distillation, tau, pad_id, weighted_sum),
        metrics=[MaskedAccuracy(pad_id), Perplexity(pad_id)],
        jit_compile=training.jit_compile and devices.compiles,
    )


def _loss(training: TrainingConfig, pad_id: int, weighted_sum: bool) -> keras.losses.Loss:
    common: dict[str, Any] = {
        "label_smoothing": training.label_smoothing,
        "pad_id": pad_id,
        "weighted_sum": weighted_sum,
    }
    if training.r_drop:
        return RDropCrossentropy(training.r_drop, **common)
    return MaskedSparseCategoricalCrossentropy(**common)


def about_smoothing(label_smoothing: float, vocabulary_size: int) -> Iterator[str]:
    """Says below which value the loss cannot fall: the entropy of a smoothed label, if it is."""
    if label_smoothing:
        others = label_smoothing / vocabulary_size
        label = 1.0 - label_smoothing + others
        floor = -label * math.log(label) - (vocabulary_size - 1) * others * math.log(others)
        yield (
            f"Loss: at best {floor:.2f}, as label smoothing is {label_smoothing:g}; the perplexity "
            "is without it, at best 1."
        )


@contextlib.contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Sets the precision, a key of `PRECISIONS`, of layers that are made within the block."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(PRECISIONS[precision])
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
