"""Filters pairs by what a model of the other direction thinks of the source, given the output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from keras_addnorm.decoding.checks import pad_rows
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.distillation.teacher import Sourced
from keras_addnorm.runs.portions import Portions, Share, is_score, is_translation
from keras_addnorm.runs.rows import Rows
from keras_addnorm.runs.trained_run import TrainedRun, load_run_of

# The source of a pair, and its translation.
Pair = tuple[str, str]


def score_share(
    backward: str,
    verify: bool,
    digest: str,
    pairs: str,
    translations: str,
    folder: str,
    share: Sequence[int] = (0, 1),
    done: Callable[[], object] = lambda: None,
) -> None:
    """Scores a share of the pairs; a result is a number, or null where the model has no room."""
    run = load_run_of(RunDirectory(backward, verify=verify), digest, digested=())
    rows = Rows(pairs)
    translated = Portions[Sourced](translations, len(rows), is_result=is_translation)

    def read(numbers: range) -> list[Pair]:
        found = translated.read(numbers.start // translated.size)
        sources = rows.read(numbers)
        return [(source, text) for (source, _), (text, *_) in zip(sources, found, strict=True)]

    size = run.config.evaluation.batch_size
    Portions[Pair](folder, len(rows), is_result=is_score).fill(
        lambda batch: score_sources(run, batch, size),
        read,
        lambda pair: len(pair[0]),
        batch_size=size,
        share=Share(*share),
        done=done,
    )


def score_sources(
    run: TrainedRun, pairs: Sequence[Pair], batch_size: int | None = None
) -> list[float | None]:
    """Computes the mean log-probability per token, end included, of sources given their outputs.

    Args:
        run: A run from the outputs' language to that of the sources.
        pairs: The source of each, and its output.
        batch_size: The rows that are computed together, so that one shape is compiled; by default
            those of the pairs.

    Returns:
        A number for each pair; `None` where a side is blank, or longer than the model reads.
    """
    tokenizers, config = run.tokenizers, run.model.config
    around = tokenizers.bound_format
    outputs = around.encode_sources([text for _, text in pairs], tokenizers.source)
    plain = around.without_leading_piece()
    rows = [
        (plain.source_row(tokens), [*around.target_prefix, *target, around.end_id])
        for tokens, target in zip(
            outputs, tokenizers.target.encode_batch([source for source, _ in pairs]), strict=True
        )
    ]
    fits = [
        index
        for index, (source, target) in enumerate(rows)
        if outputs[index]
        and len(target) > around.target_length
        and max(len(source), len(target)) <= config.max_length
    ]
    found: list[float | None] = [None] * len(pairs)
    if not fits:
        return found
    # A row that is there once more fills the batch up.
    filled = [rows[index] for index in fits]
    filled += filled[:1] * ((batch_size or 0) - len(filled))
    sources, targets = zip(*filled, strict=True)
    free = len(around.target_prefix)
    scored = run.model.score(
        pad_rows(sources, config.pad_id), pad_rows(targets, config.pad_id), num_free_tokens=free
    )
    for index, total in zip(fits, scored.log_probabilities.tolist(), strict=False):
        found[index] = total / (len(rows[index][1]) - free)
    return found


def kept(scores: Iterable[float | None], drop_worst: float) -> np.ndarray:
    """Tells which pairs are kept: all but the share with the lowest scores, and those without one.

    Of equal scores the later ones are left out.

    Args:
        scores: The scores.
        drop_worst: The share, at least 0 and below 1.

    Returns:
        A truth value for each.
    """
    values = np.array([-np.inf if score is None else score for score in scores], "float64")
    order = np.lexsort((-np.arange(len(values)), values))
    is_kept = np.isfinite(values)
    is_kept[order[: int(drop_worst * len(values))]] = False
    return is_kept
