"""What `keras-addnorm zoo list` prints: our models, and the public checkpoints that are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from keras_addnorm.basics.public_checkpoints import PublicCheckpoint
from keras_addnorm.runs.zoo.registry import ZooModel

NOT_CHECKED = "not checked"
"""Stands for the licence of a checkpoint whose card nobody has read."""

_BYTES_OF_A_WEIGHT = 4


def table_of_models(models: Iterable[ZooModel]) -> str:
    """Lays out the models of the zoo, a line each.

    Args:
        models: The models.

    Returns:
        The lines, and below them what the scores are of.
    """
    models = list(models)
    rows = [
        (
            model.name,
            model.about,
            f"{model.config.source}-{model.config.target}",
            _size(model),
            model.licence,
            "" if model.scores is None else f"{model.scores.bleu:.2f}",
            "" if model.scores is None else f"{model.scores.exact_match:.1f}",
            "distill" if model.teacher else "train",
            "no" if model.file is None else "yes",
        )
        for model in models
    ]
    titles = ("name", "what", "task", "MB", "licence", "BLEU", "exact %", "made by", "published")
    scored = [model.scores for model in models if model.scores is not None]
    signatures = dict.fromkeys(
        f"BLEU and exact matches: {one.sentences:,} sentences of the split {one.split!r}, "
        f"{one.bleu_signature}"
        for one in scored
    )
    notes = [
        *signatures,
        "keras-addnorm zoo make MODEL DIR makes one; an empty score: not made yet",
    ]
    return "\n".join([*_columns(titles, rows), "", *notes])


def table_of_checkpoints(checkpoints: Iterable[PublicCheckpoint]) -> str:
    """Lays out the public checkpoints, a line each.

    Args:
        checkpoints: The checkpoints.

    Returns:
        The lines, and below them what their last column means.
    """
    rows = [(one.name, one.family, one.licence or NOT_CHECKED, one.state) for one in checkpoints]
    notes = (
        f"A licence is what the card had in November 2026; {NOT_CHECKED!r}: nobody has read it for "
        "this list. The card decides.",
        "What each word of the last column means: docs/pretrained.md, Public checkpoints.",
    )
    return "\n".join([*_columns(("name", "family", "licence", "state"), rows), "", *notes])


def _size(model: ZooModel) -> str:
    return "" if model.weights is None else f"{model.weights * _BYTES_OF_A_WEIGHT / 1e6:.1f}"


def _columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines in columns that are as wide as their longest cell."""
    lines = [titles, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
