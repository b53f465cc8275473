"""The traceable core: from token ids to token ids, in Keras operations only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from keras import ops

from keras_addnorm.decoding import strategies
from keras_addnorm.decoding.constraints import Constraint, ConstraintLike
from keras_addnorm.decoding.constraints import get as get_constraint
from keras_addnorm.decoding.coverage import get as get_coverage
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.steps import Cache, Found, SpecialIds, Step
from keras_addnorm.decoding.strategies import StrategyLike
from keras_addnorm.decoding.strategy import Strategy
from keras_addnorm.decoding.task import Task

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Request:
    """What is compiled once: how to search.

    Args:
        strategy: The strategy.
        max_length: Number of tokens to generate at most.
        constraints: Rules about the next token.
    """

    strategy: Strategy
    max_length: int
    constraints: tuple[Constraint, ...] = ()


def decode(
    model: Any,
    source_ids: Tensor,
    *,
    num_beams: int | None = None,
    length_penalty: LengthPenaltyLike | None = None,
    max_length: int,
    strategy: StrategyLike | None = None,
    constraints: Iterable[ConstraintLike] = (),
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
        constraints: Rules about the next token.

    Returns:
        Token ids `(B, max_length)` and scores `(B,)` of the best hypotheses.
    """
    request = Request(
        strategies.choose(strategy, num_beams, length_penalty),
        max_length,
        tuple(map(get_constraint, constraints)),
    )
    found = search(model, source_ids, request)
    return found.ids[:, 0], found.scores[:, 0]


def search(
    model: Any,
    source_ids: Tensor,
    request: Request,
    prefix: Tensor | None = None,
    seed: Tensor | None = None,
) -> Found:
    """Encode a batch and search for its outputs; like `decode`, with all that was found.

    Args:
        model: See `decode`.
        source_ids: See `decode`.
        request: How to search.
        prefix: Tokens that the outputs begin with; see `Task`.
        seed: For strategies that draw; see `Task`.

    Returns:
        The best hypotheses of each sentence.
    """
    config, strategy = model.config, request.strategy
    memory, memory_mask = model.encode(source_ids)
    rows = ops.shape(source_ids)[0] * strategy.rows_per_sentence
    layers = model.initial_cache(memory, rows, request.max_length)
    # Keys and values of the memory do not change and belong to no hypothesis: the loop carries
    # and reorders only those of the self-attention.
    fixed = [{k: v for k, v in layer.items() if k != "self_attention"} for layer in layers]
    cache = {"self_attention": [layer["self_attention"] for layer in layers]}

    def cached_step(tokens: Tensor, index: Tensor, cache: Cache, **options: Any) -> Any:
        own = cache["self_attention"]
        layers = [{**layer, "self_attention": o} for layer, o in zip(fixed, own, strict=True)]
        logits, layers, *scores = model.decode_step(tokens, layers, index, memory_mask, **options)
        return logits, {"self_attention": [layer["self_attention"] for layer in layers]}, *scores

    step: Step = cached_step
    bonus = None
    coverage = get_coverage(strategy.coverage_penalty)
    if coverage is not None:
        mask = ops.repeat(memory_mask, strategy.rows_per_sentence, axis=0)
        cache["attention"] = ops.zeros(ops.shape(mask), dtype="float32")

        def reading_step(tokens: Tensor, index: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            logits, new, scores = cached_step(tokens, index, cache, return_attention_scores=True)
            # (N, H, 1, S) -> (N, S)
            attention = ops.cast(scores[coverage.layer]["cross_attention"], "float32")
            attention = ops.mean(attention[:, :, 0], axis=1)
            return logits, {**new, "attention": cache["attention"] + attention}

        def bonus_of(cache: Cache) -> Tensor:
            return coverage.term(cache["attention"], mask)

        step, bonus = reading_step, bonus_of

    task = Task(
        source_ids,
        request.max_length,
        SpecialIds(config.pad_id, config.start_id, config.end_id),
        request.constraints,
        prefix,
        seed,
        bonus,
    )
    return strategy.search(step, cache, task)
