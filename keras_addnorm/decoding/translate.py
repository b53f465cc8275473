"""From text to text, in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Translations:
    """Translated texts and their scores, in the order of the inputs.

    Args:
        texts: One string an input.
        scores: Sums of log-probabilities, divided by the length penalty, `(n,)`.
    """

    texts: list[str]
    scores: np.ndarray


def translate(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    num_beams: int = 1,
    length_penalty: float = 0.0,
    max_length: int | None = None,
    batch_size: int = 64,
    jit_compile: bool = True,
) -> Translations:
    """Translate texts with a model and its tokenizer.

    Args:
        model: A `Seq2SeqTransformer`.
        tokenizer: A `Tokenizer` for both sides, or a pair with `source` and `target`.
        texts: The sentences. An empty one gives an empty translation with the score 0. One of
            more than `config.max_length - 1` tokens is cut there.
        num_beams: Number of hypotheses; 1 is greedy search.
        length_penalty: The exponent of the GNMT penalty.
        max_length: Number of tokens to generate at most; `None` for `config.max_length`.
        batch_size: Number of sentences that are decoded together.
        jit_compile: Whether TensorFlow compiles with XLA.

    Returns:
        The translations.

    Raises:
        ValueError: If `texts` is not a list of strings, `batch_size` is not positive, or the
            tokenizer's vocabulary is not the model's.
    """
    is_list = isinstance(texts, Iterable) and not isinstance(texts, str | bytes)
    # A generator can be read once only: first make a list of it, then look into it.
    texts = list(texts) if is_list else texts
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            "translate works on a list of sentences. Expected a list of str. "
            f"Received: {texts!r:.80}"
        )
    if batch_size < 1:
        raise ValueError(f"`batch_size` has to be positive. Expected >= 1. Received: {batch_size}")
    source_tokenizer = getattr(tokenizer, "source", tokenizer)
    target_tokenizer = getattr(tokenizer, "target", tokenizer)
    config = model.config
    _check_vocabulary("source", source_tokenizer.vocabulary_size, config.source_vocabulary_size)
    _check_vocabulary("target", target_tokenizer.vocabulary_size, config.target_vocabulary_size)

    rows = [_source_row(tokens, config) for tokens in source_tokenizer.encode_batch(texts)]
    results: list[str] = [""] * len(rows)
    scores = np.zeros((len(rows),), dtype="float32")
    for batch in _batches_by_length(rows, batch_size):
        ids, batch_scores = model.generate(
            _pad([rows[i] for i in batch], config.pad_id, min(batch_size, len(rows))),
            num_beams=num_beams,
            length_penalty=length_penalty,
            max_length=max_length,
            jit_compile=jit_compile,
        )
        decoded = target_tokenizer.decode_batch(ids[: len(batch)].tolist())
        for i, text, score in zip(batch, decoded, batch_scores, strict=False):
            results[i], scores[i] = text, score
    return Translations(results, scores)


def _source_row(tokens: list[int], config: Any) -> list[int]:
    return [*tokens[: config.max_length - 1], config.end_id] if tokens else []


def _batches_by_length(rows: list[list[int]], batch_size: int) -> Iterator[list[int]]:
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def _pad(rows: list[list[int]], pad_id: int, batch_size: int) -> np.ndarray:
    # A short last batch of many is filled up with empty rows, so that it compiles nothing new.
    padded = np.full((batch_size, max(1, *map(len, rows))), pad_id, dtype="int32")
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded


def _check_vocabulary(side: str, received: int, expected: int) -> None:
    if received != expected:
        raise ValueError(
            f"The tokenizer does not belong to the model. Expected a {side} vocabulary of "
            f"{expected} tokens. Received: {received}. Load the tokenizer that was saved with it."
        )
