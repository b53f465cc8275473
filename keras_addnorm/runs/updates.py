"""How many updates a training will have, and whether their number and size can be meant."""

from __future__ import annotations

from collections.abc import Iterator

from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.runs.settings import TrainingConfig


def _updates(number: int) -> str:
    return "update is" if number == 1 else "updates are"


def about_updates(training: TrainingConfig, report: PipelineReport) -> Iterator[str]:
    """Says how many updates a training will have, and warns of too few or too small ones.

    Args:
        training: The settings.
        report: What an epoch holds.

    Yields:
        A line, and one more for each warning.
    """
    an_epoch = report.batches // training.batches_per_update
    total = an_epoch * training.epochs
    yield f"Updates: {total:,}, {an_epoch:,} an epoch."
    if training.schedule != "constant" and total < training.warmup_steps:
        yield (
            f"Warning: {total:,} {_updates(total)} fewer than the {training.warmup_steps:,} over "
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
