"""A decoder as the algorithms of a search see it: a step, a cache, and no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_addnorm.decoding.cache import Cache, grow_cache
from keras_addnorm.decoding.coverage import CoveragePenalty
from keras_addnorm.decoding.engine import Engine, engine_for
from keras_addnorm.decoding.engine.base import Grow
from keras_addnorm.decoding.engine.beam_cache import is_shared
from keras_addnorm.decoding.indexing import take
from keras_addnorm.layers.shapes import size_of

Tensor = Any
Step = Callable[..., Any]
"""`step(token_ids (N,), index, cache) -> (logits (N, V), cache)`.

That of `make_step_model` also takes options of `decode_step`: what they ask for comes last."""


def _same(cache: Cache, length: int | Tensor) -> Cache:
    return cache


@dataclasses.dataclass(frozen=True)
class StepModel:
    """What a strategy searches with.

    Args:
        step: The decoder. With K rows a sentence, rows `b K` to `b K + K - 1` belong to sentence b.
        cache: What it keeps before the first step, with room for the engine's first length. A loop
            of one's own makes all of the room first: `grow(cache, max_length)`.
        grow: Makes room for more positions.
        engine: What makes the search fast.
        score_bonus: Reads from the cache after a step what is added to the score of each row's
            hypothesis, `(N,)`, never positive; `None` for nothing.
    """

    step: Step
    cache: Cache
    grow: Grow = _same
    engine: Engine = dataclasses.field(default_factory=engine_for)
    score_bonus: Callable[[Cache], Tensor] | None = None


def make_step_model(
    decoder: Any,
    source_ids: Tensor,
    max_length: int,
    rows_per_sentence: int,
    rows_per_beam: int,
    engine: Engine,
    coverage: CoveragePenalty | None = None,
    tokens: Tensor | None = None,
) -> StepModel:
    """Encode a batch, and return the decoder that is to be searched for it.

    Args:
        decoder: A `Decoder`.
        source_ids: `(B, S)` int32.
        max_length: Number of tokens to generate at most.
        rows_per_sentence: Number of rows that are decoded for each sentence, K.
        rows_per_beam: Number of them, side by side, that may go on from one another.
        engine: What makes the search fast.
        coverage: What is added to scores for what was left unread; `None` for nothing.
        tokens: `(M,)`, the tokens of a shortlist: the step reads, and speaks of, places in it.
            `None` for all.

    Returns:
        The step, its cache and how it grows.
    """
    memory, mask = decoder.encode(source_ids)
    num_sentences = ops.shape(source_ids)[0]
    # Of the source, not of the memory: a model of one's own may have a shorter one.
    length = engine.first_length(max_length, size_of(source_ids, 1))
    view = engine.view(decoder, rows_per_sentence, rows_per_beam, tokens)
    rows_per_mask = rows_per_sentence
    kept = None if view is decoder else view.initial_cache(memory, num_sentences, length)
    if not is_shared(kept):
        # Each hypothesis has rows of its own, which are reordered with it.
        view = engine.view(decoder, rows_per_sentence, rows_per_beam, tokens, share_caches=False)
        memory, mask = _repeat((memory, mask), rows_per_sentence)
        rows_per_mask = 1
        kept = view.initial_cache(memory, num_sentences * rows_per_sentence, max_length)
    cache = Cache({"decoder": kept}, {"memory_mask": () if mask is None else mask})

    def step(token_ids: Tensor, index: Tensor, cache: Cache, **options: Any) -> Any:
        mask = cache.fixed["memory_mask"]
        logits, kept, *scores = view.decode_step(
            token_ids if tokens is None else take(tokens, token_ids),
            cache.rows["decoder"],
            index,
            mask if ops.is_tensor(mask) else None,
            **options,
        )
        if tokens is not None and logits.shape[-1] != tokens.shape[0]:
            logits = ops.take(logits, tokens, axis=1)
        return logits, cache._replace(rows={**cache.rows, "decoder": kept}), *scores

    def grow(cache: Cache, length: int | Tensor) -> Cache:
        return grow_cache(cache, length, rows_per_beam)

    if coverage is None:
        return StepModel(step, cache, grow, engine)
    source_mask = _repeat(mask, rows_per_mask)
    return _with_coverage(StepModel(step, cache, grow, engine), coverage, source_mask)


def _with_coverage(
    model: StepModel, coverage: CoveragePenalty, source_mask: Tensor | None
) -> StepModel:
    """Return the model with the attention that each source token has received in its cache."""
    if source_mask is None:
        raise ValueError(
            "A coverage penalty needs a source that is attended to. Expected a decoder whose "
            "`encode` returns a memory and its padding mask. Received: None. Leave "
            "`coverage_penalty` out."
        )
    cache = model.cache
    unread = ops.zeros(ops.shape(source_mask), dtype="float32")
    cache = Cache(
        {**cache.rows, "attention": unread}, {**cache.fixed, "is_source_token": source_mask}
    )

    def step(token_ids: Tensor, index: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        logits, new, scores = model.step(token_ids, index, cache, return_attention_scores=True)
        # (M, H, n, S) -> (M, n, S) -> (N, S)
        attention = ops.cast(scores[coverage.layer]["cross_attention"], "float32")
        total = cache.rows["attention"]
        total = total + ops.reshape(ops.mean(attention, axis=1), ops.shape(total))
        return logits, new._replace(rows={**new.rows, "attention": total})

    def score_bonus(cache: Cache) -> Tensor:
        return coverage.term(cache.rows["attention"], cache.fixed["is_source_token"])

    return StepModel(step, cache, model.grow, model.engine, score_bonus)


def _repeat(structure: Any, count: int) -> Any:
    """Return each row of all tensors `count` times, side by side."""
    if count == 1:
        return structure
    return keras.tree.map_structure(
        lambda x: None if x is None else ops.repeat(x, count, axis=0), structure
    )
