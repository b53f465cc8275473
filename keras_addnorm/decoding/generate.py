"""`generate`: from arrays of token ids to arrays of token ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_addnorm.decoding import strategies
from keras_addnorm.decoding.compilation import run_compiled
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.search import search
from keras_addnorm.decoding.strategies import StrategyLike
from keras_addnorm.decoding.strategy import Strategy, require_positive

_SOURCE_MULTIPLE = 16


def generate(
    model: Any,
    source_ids: Any,
    strategy: StrategyLike | None = None,
    *,
    num_beams: int | None = None,
    length_penalty: LengthPenaltyLike | None = None,
    max_length: int | None = None,
    jit_compile: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Check, pad, compile and run a search; documented at `Seq2SeqTransformer.generate`.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: Integers, `(B, S)`.
        strategy: A strategy, its name or its dict.
        num_beams: The short way: number of hypotheses.
        length_penalty: The short way: the exponent of the GNMT penalty, or a `LengthPenalty`.
        max_length: Number of tokens to generate at most; `None` for `config.max_length`.
        jit_compile: Whether TensorFlow compiles with XLA.

    Returns:
        Token ids `(B, max_length)` int32 and scores `(B,)` float32; `(B, N, max_length)` and
        `(B, N)` of a strategy that returns N > 1.

    Raises:
        ValueError: If the ids or an option do not fit.
        FloatingPointError: If the model computed something that is no number.
    """
    strategy = strategies.choose(strategy, num_beams, length_penalty)
    max_length = model.config.max_length if max_length is None else max_length
    _check_max_length(model.config, max_length)
    source_ids = _check_source_ids(source_ids, model.config)
    ids, scores = _search(model, source_ids, strategy, max_length, jit_compile)
    return (ids[:, 0], scores[:, 0]) if strategy.num_return == 1 else (ids, scores)


def _search(
    model: Any, source_ids: np.ndarray, strategy: Strategy, max_length: int, jit_compile: bool
) -> tuple[np.ndarray, np.ndarray]:
    batch_size, length = source_ids.shape
    if batch_size == 0:
        shape = (0, strategy.num_return)
        return np.zeros((*shape, max_length), "int32"), np.zeros(shape, "float32")
    padded_shape = (1 << (batch_size - 1).bit_length(), _padded_length(length, model.config))
    padded = np.full(padded_shape, model.config.pad_id, dtype="int32")
    padded[:batch_size, :length] = source_ids
    found = run_compiled(
        model,
        ("search", strategy, max_length),
        lambda source_ids: search(model, source_ids, strategy, max_length),
        (padded,),
        jit_compile,
    )
    if found.bad_step < max_length:
        raise FloatingPointError(
            f"A logit was NaN or infinite at step {found.bad_step} of the search. Expected finite "
            "logits. Look for NaN among the weights, which training may have left there, and for "
            "an overflow if the model computes in float16."
        )
    return found.ids[:batch_size], found.scores[:batch_size]


def _padded_length(length: int, config: Any) -> int:
    padded = _SOURCE_MULTIPLE * max(1, -(-length // _SOURCE_MULTIPLE))
    # Padding takes positions too: it must not run out of the table of learned ones.
    return max(length, min(padded, config.max_length)) if config.positions == "learned" else padded


def _check_max_length(config: Any, max_length: int) -> None:
    require_positive("There is nothing to generate.", max_length=max_length)
    if config.positions == "learned" and max_length > config.max_length:
        raise ValueError(
            "The model has learned positions and cannot generate past them. Expected max_length "
            f"<= {config.max_length}. Received: {max_length}"
        )


def _check_source_ids(source_ids: Any, config: Any) -> np.ndarray:
    array = np.asarray(source_ids)
    if array.ndim != 2:
        raise ValueError(
            "Source ids need two axes. Expected shape (batch, length). "
            f"Received: {array.shape}. For one sentence, add a batch axis: ids[None]"
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            "Source ids have to be integers. Expected a dtype such as int32. "
            f"Received: {array.dtype}. Text goes through keras_addnorm.decoding.translate."
        )
    size = config.source_vocabulary_size
    if array.size and not (array.min() >= 0 and array.max() < size):
        raise ValueError(
            f"A source id lies outside the vocabulary. Expected 0 <= id < {size}. Received ids "
            f"from {array.min()} to {array.max()}. Is this the model's own tokenizer?"
        )
    return array
