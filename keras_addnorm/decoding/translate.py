"""From text to text, in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_addnorm.decoding import strategies
from keras_addnorm.decoding.constraints import ConstraintLike
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.shortlist import Shortlist
from keras_addnorm.decoding.strategies import StrategyLike


class Translation(NamedTuple):
    """One translation.

    Args:
        text: The text.
        score: Its sum of log-probabilities, divided by the length penalty.
    """

    text: str
    score: float


@dataclasses.dataclass(frozen=True)
class Translations:
    """Translated texts and their scores, in the order of the inputs.

    Args:
        texts: The best translation of each input; "" where the search found none.
        scores: Their scores, `(n,)`: sums of log-probabilities, divided by the length penalty.
        n_best: All translations of each input that the strategy returned, the best first.
    """

    texts: list[str]
    scores: np.ndarray
    n_best: list[list[Translation]]


def translate(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    strategy: StrategyLike | None = None,
    *,
    num_beams: int | None = None,
    length_penalty: LengthPenaltyLike | None = None,
    max_length: int | None = None,
    constraints: Iterable[ConstraintLike] = (),
    shortlist: Shortlist | None = None,
    batch_size: int = 64,
    jit_compile: bool = True,
) -> Translations:
    """Translate texts with a model and its tokenizer.

    Args:
        model: A `Seq2SeqTransformer`.
        tokenizer: A `Tokenizer` for both sides, or a pair with `source` and `target`.
        texts: The sentences. An empty one gives an empty translation with the score 0. One of
            more than `config.max_length - 1` tokens is cut there.
        strategy: How to search: a strategy, its name or its dict; with `num_return` N > 1, all N
            are in `n_best`.
        num_beams: The short way: number of hypotheses; 1, as `None`, is greedy search.
        length_penalty: The short way: the exponent of the GNMT penalty, or a `LengthPenalty`.
        max_length: Number of tokens to generate at most; `None` for `config.max_length`.
        constraints: Rules about the next token.
        shortlist: The target tokens that are weighed for a batch, instead of all.
        batch_size: Number of sentences that are decoded together.
        jit_compile: Whether TensorFlow compiles with XLA.

    Returns:
        The translations.

    Raises:
        ValueError: If `texts` is not a list of strings, `batch_size` is not positive, or the
            tokenizer's vocabulary is not the model's.
    """
    strategy = strategies.choose(strategy, num_beams, length_penalty)
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
    constraints = tuple(constraints)
    n_best: list[list[Translation]] = [[] for _ in rows]
    for batch in _batches_by_length(rows, batch_size):
        ids, scores = model.generate(
            _pad([rows[i] for i in batch], config.pad_id, min(batch_size, len(rows))),
            strategy,
            max_length=max_length,
            constraints=constraints,
            shortlist=shortlist,
            jit_compile=jit_compile,
        )
        # (B, N, T), also where there is no axis N
        ids = np.reshape(ids, (len(ids), strategy.num_return, -1))
        scores = np.reshape(scores, (-1, strategy.num_return))
        for i, sentence_ids, sentence_scores in zip(batch, ids, scores, strict=False):
            decoded = target_tokenizer.decode_batch(sentence_ids.tolist())
            found = list(map(Translation, decoded, sentence_scores.tolist()))
            n_best[i] = [found[0], *(each for each in found[1:] if each.score > -np.inf)]
    return Translations(
        [found[0].text for found in n_best],
        np.array([found[0].score for found in n_best], dtype="float32"),
        n_best,
    )


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
