"""Inspects a trained run: a report about its model on a batch of its data."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.decoding import Prefix
from keras_addnorm.decoding.checks import pad_rows
from keras_addnorm.diagnostics import Report, ResidualLog, Sentence, effective_depth
from keras_addnorm.diagnostics import inspect as inspect_model
from keras_addnorm.runs.directory import write_text
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.piece_labels import readable_pieces
from keras_addnorm.runs.text_data import load_pairs
from keras_addnorm.runs.trained_run import TrainedRun
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy


def inspect(
    run: TrainedRun, split: str = "validation", *, batch_size: int = 32, sentence: str | None = None
) -> Report:
    """Inspects a run's model on the first sentence pairs of a split.

    The loss is the one of the training, label smoothing included, without dropout. A sentence
    longer than the model's positions is cut.

    Args:
        run: A trained run.
        split: The split, such as `validation`, `test` or `validation[100:]`.
        batch_size: How many pairs.
        sentence: A source sentence to draw attention maps of, with the model's own translation
            (greedy search); `None` for the first pair of the split.

    Returns:
        The report.

    Raises:
        UserError: If the split does not exist or is empty, or the sentence has no tokens.
    """
    if batch_size < 1:
        raise ArgumentError("A batch needs a sentence pair.", received=f"--batch-size {batch_size}")
    batch = _batch(run, split, batch_size)
    loss = MaskedSparseCategoricalCrossentropy(
        run.config.training.label_smoothing, pad_id=run.model.config.pad_id
    )
    return inspect_model(
        run.model,
        batch,
        loss,
        sentence=_sentence(run, *_drawn(run, batch, sentence)),
        depth=effective_depth(run.model, batch, loss),
    )


def write(
    report: Report,
    run: TrainedRun,
    *,
    html: str | Path | None = None,
    json_file: str | Path | None = None,
) -> list[Path]:
    """Writes a report to files, each whole or not at all, and returns them.

    A log of `ResidualMonitor` in the directory of the run becomes the page's slider.
    """
    if json_file is not None:
        text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(json_file, text + "\n")
    if html is not None:
        with as_user_errors():
            log = ResidualLog(run.directory.residuals).read()
            report.to_html(html, log=log, title=f"Add & Norm in {run.directory.path.name}")
    return [Path(path) for path in (html, json_file) if path is not None]


def _batch(run: TrainedRun, split: str, size: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The first pairs that have words on both sides, for teacher forcing."""
    source, target = run.tokenizers.source, run.tokenizers.target
    around, max_length = run.tokenizers.bound_format, run.model.config.max_length
    longest = max_length - around.target_length
    encoded = (
        (source.encode(said)[: around.longest_source(max_length)], target.encode(meant)[:longest])
        for said, meant in load_pairs(run.config, split)
    )
    rows = list(itertools.islice((pair for pair in encoded if all(pair)), size))
    if not rows:
        raise UserError(f"The split {split!r} of {run.config.data!r} has no sentence pair.")
    pad_id = run.model.config.pad_id
    targets = [[*around.target_prefix, *meant] for _, meant in rows]
    labels = pad_rows([[*meant, run.model.config.end_id] for meant in targets], pad_id)
    inputs = {
        "source": pad_rows([around.source_row(said) for said, _ in rows], pad_id),
        "target": pad_rows([[run.model.config.start_id, *meant] for meant in targets], pad_id),
    }
    return inputs, labels


def _drawn(run: TrainedRun, batch: Any, sentence: str | None) -> tuple[list[int], list[int]]:
    """The tokens that encoder and decoder read in the attention maps."""
    config = run.model.config
    if sentence is None:
        inputs, labels = batch
        target = [config.start_id, *_unpadded(labels[0], config.pad_id)[:-1]]
        return _unpadded(inputs["source"][0], config.pad_id), target
    around = run.tokenizers.bound_format
    tokens = run.tokenizers.source.encode(sentence)[: around.longest_source(config.max_length)]
    if not tokens:
        raise ArgumentError("There is nothing to draw.", "a sentence", value=sentence)
    source = around.source_row(tokens)
    prefix = Prefix(around.target_prefix, around.is_prefix_free) if around.target_prefix else None
    ids, _ = run.model.generate(
        np.array([source]), max_length=run.config.evaluation.max_length, target_prefix=prefix
    )
    return source, [config.start_id, *_unpadded(ids[0], config.pad_id)[:-1]]


def _unpadded(row: np.ndarray, pad_id: int) -> list[int]:
    return [int(token) for token in row if token != pad_id]


def _sentence(run: TrainedRun, source: list[int], target: list[int]) -> Sentence:
    return Sentence(
        {"source": np.array([source], "int32"), "target": np.array([target], "int32")},
        source=readable_pieces(run.tokenizers.source, source),
        target=readable_pieces(run.tokenizers.target, target),
    )
