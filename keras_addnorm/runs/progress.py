"""Progress messages of a training: a line per epoch, and a summary at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.runs.directory import RunDirectory


def duration(seconds: float) -> str:
    """Writes a duration in words, such as `2 h 05 min`, `3 min 20 s` or `8 s`."""
    seconds = round(seconds)
    if seconds >= 3600:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    if seconds >= 60:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds} s"


def epoch_line(
    rows: Sequence[Mapping[str, float]], epochs: int, compiling: Mapping[int, float] | None = None
) -> str:
    """Writes how fast the last epoch was and how long the rest will take.

    Args:
        rows: The log so far.
        epochs: How many epochs there are to be.
        compiling: The seconds of an epoch that are not needed again.

    Returns:
        The line.
    """
    row, recent, once = rows[-1], rows[-3:], compiling or {}
    done = int(row["epoch"]) + 1
    seconds = sum(one["seconds"] - once.get(int(one["epoch"]), 0.0) for one in recent)
    left = (epochs - done) * seconds / len(recent)
    return (
        f"Epoch {done} of {epochs}: {row['examples_per_second']:,.0f} examples/s, "
        f"{row['tokens_per_second']:,.0f} tokens/s, {row['padding']:.1%} padding; "
        f"{duration(left)} left."
    )


def summary(
    directory: RunDirectory, rows: Sequence[Mapping[str, float]], best: int, report: PipelineReport
) -> str:
    """Writes the results of a training on one screen; `best` is an epoch, counted from 0."""
    chosen = next(row for row in rows if row["epoch"] == best)
    seconds = sum(row["seconds"] for row in rows)
    scores = ", ".join(
        f"{name} {chosen[name]:.4g}"
        for name in ("val_loss", "val_perplexity", "val_accuracy", "val_bleu", "val_chrf")
        if name in chosen
    )
    facts = {
        "epochs": f"{len(rows)}, the best is {best + 1}",
        "best epoch": scores,
        "time": f"{duration(seconds)}, {duration(seconds / len(rows))} an epoch",
        "speed": f"{rows[-1]['tokens_per_second']:,.0f} tokens/s",
        "data": str(report),
        "memory": f"{max(row['peak_memory_mib'] for row in rows):,.0f} MiB at most",
        "weights": str(directory.weights()),
        "log": f"{directory.log}, {directory.curves}",
    }
    return "\n".join(["", *(f"  {name:<11} {fact}" for name, fact in facts.items())])
