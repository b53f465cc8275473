"""Progress messages of a training: a line per epoch, and a summary at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.terminal import duration
from keras_addnorm.runs.updates import Course


def epoch_line(row: Mapping[str, float], course: Course, seconds_an_epoch: float | None) -> str:
    """Writes how fast the last epoch was and how long the rest will take.

    Args:
        row: The epoch's row of the log.
        course: How many epochs there are to be.
        seconds_an_epoch: How long one takes; None if the first one cannot tell.

    Returns:
        The line.
    """
    done = int(row["epoch"]) + 1
    examples = f"{row['examples_per_second']:,.0f}"
    if seconds_an_epoch is None and done < course.epochs:
        left = "most of it compiled; the next epoch shows how much time is left."
    else:
        left = f"{duration((course.epochs - done) * (seconds_an_epoch or 0.0))} left."
    return (
        f"{course.name(done).capitalize()}: {examples} example{'' if examples == '1' else 's'}/s, "
        f"{row['tokens_per_second']:,.0f} tokens/s, {row['padding']:.1%} padding; {left}"
    )


def summary(
    directory: RunDirectory, rows: Sequence[Mapping[str, float]], best: int, report: PipelineReport
) -> str:
    """Writes the results of a training on one screen; `best` is an epoch, counted from 0."""
    chosen = next(row for row in rows if row["epoch"] == best)
    seconds = sum(row["seconds"] for row in rows)
    counted, each, how_many = "epochs", "an epoch", f"{len(rows)}, the best is {best + 1}"
    if "updates" in chosen:
        counted, each = "updates", "to each validation"
        how_many = f"{rows[-1]['updates']:,}, the best weights are after {chosen['updates']:,}"
    scores = ", ".join(
        f"{name} {chosen[name]:.4g}"
        for name in ("val_loss", "val_perplexity", "val_accuracy", "val_bleu", "val_chrf")
        if name in chosen
    )
    facts = {
        counted: how_many,
        f"best {counted[:-1]}": scores,
        "time": f"{duration(seconds)}, {duration(seconds / len(rows))} {each}",
        "speed": f"{rows[-1]['tokens_per_second']:,.0f} tokens/s",
        "data": str(report),
        "memory": f"{max(row['peak_memory_mib'] for row in rows):,.0f} MiB at most",
        "weights": str(directory.weights()),
        "log": f"{directory.log}, {directory.curves}",
    }
    return "\n".join(["", *(f"  {name:<11} {fact}" for name, fact in facts.items())])
