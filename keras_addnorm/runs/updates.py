"""How long a training will be and what it costs, and whether that can be meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.settings import WARMUP, RunConfig, TrainingConfig
from keras_addnorm.training.checkpoint_file import TrainingState


@dataclass(frozen=True)
class Course:
    """How long a training is, in epochs of `fit`: passes over the pairs, or numbers of updates.

    Attributes:
        epochs: How many of them there are.
        batches: Batches of each.
        batches_per_update: How many batches make an update.
        counts_updates: Whether they are numbers of updates, of `training.validate_every`.
    """

    epochs: int
    batches: int
    batches_per_update: int = 1
    counts_updates: bool = False

    @classmethod
    def of(cls, training: TrainingConfig, batches_of_pass: int) -> Course:
        """Finds it, given the batches of a pass over the pairs; rounded up to whole epochs."""
        together, every = training.batches_per_update, training.validate_every
        batches = every * together or batches_of_pass
        steps = training.max_updates * together or training.epochs * batches_of_pass
        return cls(-(-steps // batches) if batches else 0, batches, together, every > 0)

    @property
    def steps(self) -> int:
        """Batches of the whole training."""
        return self.epochs * self.batches

    @property
    def updates(self) -> int:
        """Updates of the whole training."""
        return self.updates_after(self.epochs)

    def updates_after(self, epochs: int) -> int:
        """Updates of so many epochs."""
        return epochs * self.batches // self.batches_per_update

    def is_other(self, before: TrainingState, plan: str) -> bool:
        """Whether updates were counted over other batches, or data of another plan."""
        is_known = bool(before.epoch and before.plan)
        is_same = (before.plan, before.batches) == (plan, self.batches)
        return self.counts_updates and is_known and not is_same

    def name(self, epochs: int) -> str:
        """How far a training is, or will be, after so many epochs: `epoch 3 of 20`."""
        if self.counts_updates:
            return f"update {self.updates_after(epochs):,} of {self.updates:,}"
        return f"epoch {epochs} of {self.epochs}"


def _updates(number: int) -> str:
    return "update is" if number == 1 else "updates are"


def with_warmup(
    config: RunConfig, directory: RunDirectory, report: PipelineReport
) -> tuple[RunConfig, str | None]:
    """Chooses the warm-up of a run that was given none; a run that goes on keeps its own.

    Returns the configuration, and a line for the user if the warm-up is shorter than usual.
    """
    training, total = config.training, Course.of(config.training, report.batches).updates
    if training.warmup_steps is not None:
        return config, None
    before = directory.read_config().training if directory.config.exists() else training
    steps = before.warmup_steps or training.warmup(total)
    counted = f"{steps:,} update{'' if steps == 1 else 's'}"
    said = f"Warm-up: {counted}, as there are few and no --warmup-steps is given."
    is_less = steps < WARMUP and training.schedule != "constant"
    return config.replace({"training.warmup_steps": steps}), said if is_less else None


def about_updates(training: TrainingConfig, report: PipelineReport) -> Iterator[str]:
    """Says how many updates a training will have, and warns of too few or too small ones."""
    course = Course.of(training, report.batches)
    an_epoch, total = report.batches // training.batches_per_update, course.updates
    often = f"; a validation every {training.validate_every:,}" if course.counts_updates else ""
    said = f"{total:,} (max_updates)" if training.max_updates else f"{total:,}"
    yield f"Updates: {said}, {an_epoch:,} an epoch{often}."
    warmup = training.warmup(total)
    if training.schedule != "constant" and total < warmup:
        yield (
            f"Warning: {total:,} {_updates(total)} fewer than the {warmup:,} over "
            "which the learning rate rises to its peak: such a training learns little. More "
            f"--epochs and fewer --tokens-per-batch (now {training.tokens_per_batch:,}) make more "
            "updates; --warmup-steps makes the rise shorter."
        )
    single = sum(pairs for length, _, pairs in report.buckets if length > training.tokens_per_batch)
    if 2 * single > report.kept:
        yield (
            f"Warning: {single:,} of {report.kept:,} pairs are longer than a batch of "
            f"{training.tokens_per_batch:,} tokens, and each is a batch of its own. Pass more "
            "--tokens-per-batch."
        )


def about_cost(training: TrainingConfig, report: PipelineReport, weights: int) -> str:
    """Says what a training will take, as far as that is known before the first batch.

    A weight takes part in two operations for each position forwards, and in four backwards
    (`docs/scaling.md`, without the products of attention).
    """
    passes = Course.of(training, report.batches).steps / max(report.batches, 1)
    tokens = report.target_tokens * passes
    positions = tokens / (1.0 - report.padding) * (2 if training.r_drop else 1)
    operations = 6.0 * weights * positions
    return (
        f"Cost: {_rounded(tokens)} target tokens, {_rounded(positions)} with padding, and about "
        f"{_rounded(operations / 1e9)} GFLOP (billions of floating-point operations)."
    )


def _rounded(number: float) -> str:
    """A number in three digits, such as `24.7 million`."""
    for size, word in ((1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if number >= size:
            return f"{number / size:.3g}{word}"
    return f"{number:.3g}" if number < 1 else f"{number:.0f}"
