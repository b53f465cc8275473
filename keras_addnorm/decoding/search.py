"""The traceable core: from token ids to token ids, in Keras operations only."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_addnorm.decoding import strategies
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.steps import Found, SpecialIds, Task
from keras_addnorm.decoding.strategies import StrategyLike
from keras_addnorm.decoding.strategy import Strategy

Tensor = Any


def decode(
    model: Any,
    source_ids: Tensor,
    *,
    num_beams: int | None = None,
    length_penalty: LengthPenaltyLike | None = None,
    max_length: int,
    strategy: StrategyLike | None = None,
) -> tuple[Tensor, Tensor]:
    """Decode a batch, in Keras operations only, so that it can be traced and exported.

    Args:
        model: A `Seq2SeqTransformer`, or any object with its `encode`, `initial_cache`,
            `decode_step` and `config`.
        source_ids: `(B, S)` int32; both sizes may be unknown while tracing.
        num_beams: The short way to say the strategy: number of hypotheses; 1 is greedy search.
        length_penalty: The short way: the exponent of the GNMT penalty, or a `LengthPenalty`.
        max_length: Number of tokens to generate at most.
        strategy: A strategy, its name or its dict, instead of the short way.

    Returns:
        Token ids `(B, max_length)` and scores `(B,)` of the best hypotheses.
    """
    chosen = strategies.choose(strategy, num_beams, length_penalty)
    found = search(model, source_ids, chosen, max_length)
    return found.ids[:, 0], found.scores[:, 0]


def search(model: Any, source_ids: Tensor, strategy: Strategy, max_length: int) -> Found:
    """Encode a batch and search for its outputs; like `decode`, with all that was found.

    Args:
        model: See `decode`.
        source_ids: See `decode`.
        strategy: How to search.
        max_length: Number of tokens to generate at most.

    Returns:
        The best hypotheses of each sentence.
    """
    config = model.config
    memory, memory_mask = model.encode(source_ids)
    rows = ops.shape(source_ids)[0] * strategy.rows_per_sentence
    cache = model.initial_cache(memory, rows, max_length)
    # Keys and values of the memory do not change and belong to no hypothesis: the loop carries
    # and reorders only those of the self-attention.
    fixed = [{k: v for k, v in layer.items() if k != "self_attention"} for layer in cache]
    moving = [layer["self_attention"] for layer in cache]

    def step(tokens: Tensor, index: Tensor, moving: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        cache = [{**layer, "self_attention": own} for layer, own in zip(fixed, moving, strict=True)]
        logits, cache = model.decode_step(tokens, cache, index, memory_mask)
        return logits, [layer["self_attention"] for layer in cache]

    task = Task(
        source_lengths=ops.sum(ops.cast(memory_mask, "int32"), axis=-1),
        max_length=max_length,
        ids=SpecialIds(config.pad_id, config.start_id, config.end_id),
    )
    return strategy.search(step, moving, task)
