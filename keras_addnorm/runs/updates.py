"""How many updates a training will have, and whether their number and size can be meant."""

from __future__ import annotations

from collections.abc import Iterator

from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.settings import WARMUP, RunConfig, TrainingConfig


def _updates(number: int) -> str:
    return "update is" if number == 1 else "updates are"


def _counts(training: TrainingConfig, report: PipelineReport) -> tuple[int, int]:
    """The updates of an epoch and of the whole training."""
    an_epoch = report.batches // training.batches_per_update
    return an_epoch, an_epoch * training.epochs


def with_warmup(
    config: RunConfig, directory: RunDirectory, report: PipelineReport
) -> tuple[RunConfig, str | None]:
    """Chooses the warm-up of a run that was given none; a run that goes on keeps its own.

    Returns the configuration, and a line for the user if the warm-up is shorter than usual.
    """
    training, (_, total) = config.training, _counts(config.training, report)
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
    an_epoch, total = _counts(training, report)
    yield f"Updates: {total:,}, {an_epoch:,} an epoch."
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
