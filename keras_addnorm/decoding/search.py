"""The traceable core: from token ids to token ids, in Keras operations only."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
from keras import ops

from keras_addnorm.decoding import strategies
from keras_addnorm.decoding.compilation import of_any_size, take
from keras_addnorm.decoding.constraints import Constraint, ConstraintLike
from keras_addnorm.decoding.constraints import get as get_constraint
from keras_addnorm.decoding.coverage import get as get_coverage
from keras_addnorm.decoding.in_place import InPlaceColumns, InPlaceHeadsFirst, OneBeam
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.shortlist import Shortlist
from keras_addnorm.decoding.stages import IN_GROUPS, IN_ONE_LOOP
from keras_addnorm.decoding.steps import Cache, Columns, Found, SpecialIds, Step, write_column
from keras_addnorm.decoding.strategies import StrategyLike
from keras_addnorm.decoding.strategy import Strategy
from keras_addnorm.decoding.task import Growth, Task
from keras_addnorm.layers.caches import HeadsFirst, heads_first
from keras_addnorm.layers.positional_embedding import Turned
from keras_addnorm.layers.projection import large_kernels_in_slices
from keras_addnorm.layers.shapes import lengthened, size_of

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Request:
    """What is compiled once: how to search.

    Args:
        strategy: The strategy.
        max_length: Number of tokens to generate at most.
        constraints: Rules about the next token.
        under_xla: Whether XLA compiles it, which knows each size then. Without it, TensorFlow has
            faster ways to write and read caches.
    """

    strategy: Strategy
    max_length: int
    constraints: tuple[Constraint, ...] = ()
    under_xla: bool = True


def decode(
    model: Any,
    source_ids: Tensor,
    *,
    num_beams: int | None = None,
    length_penalty: LengthPenaltyLike | None = None,
    max_length: int,
    strategy: StrategyLike | None = None,
    constraints: Iterable[ConstraintLike] = (),
    shortlist: Shortlist | None = None,
) -> tuple[Tensor, Tensor]:
    """Decode a batch, in Keras operations only, so that it can be traced and exported.

    Args:
        model: A `Seq2SeqTransformer`, or any object with its `encode`, `initial_cache`,
            `to_logits`, `decode_step` and `config`.
        source_ids: `(B, S)` int32; both sizes may be unknown while tracing.
        num_beams: The short way to say the strategy: number of hypotheses; 1 is greedy search.
        length_penalty: The short way: the exponent of the GNMT penalty, or a `LengthPenalty`.
        max_length: Number of tokens to generate at most.
        strategy: A strategy, its name or its dict, instead of the short way.
        constraints: Rules about the next token.
        shortlist: Says which target tokens are weighed; `None` for all.

    Returns:
        Token ids `(B, max_length)` and scores `(B,)` of the best hypotheses.
    """
    request = Request(
        strategies.choose(strategy, num_beams, length_penalty),
        max_length,
        tuple(map(get_constraint, constraints)),
    )
    found = search(model, source_ids, request, shortlist=shortlist)
    return found.ids[:, 0], found.scores[:, 0]


def search(
    model: Any,
    source_ids: Tensor,
    request: Request,
    prefix: Tensor | None = None,
    seed: Tensor | None = None,
    shortlist: Shortlist | None = None,
) -> Found:
    """Encode a batch and search for its outputs; like `decode`, with all that was found.

    Args:
        model: See `decode`. Not under XLA, its `decoder` is asked for its `joined_weights`, too.
        source_ids: See `decode`.
        request: How to search.
        prefix: Tokens that the outputs begin with; see `Task`.
        seed: For strategies that draw; see `Task`.
        shortlist: Says which target tokens are weighed; `None` for all.

    Returns:
        The best hypotheses of each sentence.
    """
    config, strategy = model.config, request.strategy
    if strategy.runs_in_stages and not request.under_xla:
        # Its loop changes the number of sentences.
        source_ids = of_any_size(source_ids)
    ids = SpecialIds(config.pad_id, config.start_id, config.end_id)
    memory, memory_mask = model.encode(source_ids)
    tokens = None if shortlist is None else shortlist.tokens(source_ids, ids)
    # Of the source, not of the memory: a model of one's own may have a shorter one.
    source_length = size_of(source_ids, 1)
    cached_step, cache, growth = _cached_step(
        model, memory, memory_mask, source_length, request, tokens
    )
    step: Step = cached_step
    bonus = None
    coverage = get_coverage(strategy.coverage_penalty)
    if coverage is not None:
        mask = ops.repeat(memory_mask, strategy.rows_per_sentence, axis=0)
        unread = ops.zeros(ops.shape(mask), dtype="float32")
        cache = cache._replace(
            rows={**cache.rows, "attention": unread}, fixed={**cache.fixed, "is_token": mask}
        )

        def reading_step(tokens: Tensor, index: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            logits, new, scores = cached_step(tokens, index, cache, return_attention_scores=True)
            # (M, H, n, S) -> (M, n, S) -> (N, S)
            attention = ops.cast(scores[coverage.layer]["cross_attention"], "float32")
            total = cache.rows["attention"]
            total = total + ops.reshape(ops.mean(attention, axis=1), ops.shape(total))
            return logits, new._replace(rows={**new.rows, "attention": total})

        def bonus_of(cache: Cache) -> Tensor:
            return coverage.term(cache.rows["attention"], cache.fixed["is_token"])

        step, bonus = reading_step, bonus_of

    task = Task(
        source_ids,
        request.max_length,
        ids,
        request.constraints,
        prefix,
        seed,
        bonus,
        tokens,
        growth,
        Columns() if request.under_xla else InPlaceColumns(),
    )
    found = strategy.search(step, cache, task)
    return found if tokens is None else found._replace(ids=take(tokens, found.ids))


def _cached_step(
    model: Any,
    memory: Tensor,
    memory_mask: Tensor,
    source_length: int | Tensor,
    request: Request,
    tokens: Tensor | None,
) -> tuple[Callable[..., Any], Cache, Growth | None]:
    """Return the model's step, its caches before the first one, and how they grow.

    With a list of tokens the step reads, and speaks of, places in it.
    """
    strategy, count = request.strategy, request.strategy.rows_per_beam
    kind, stages = HeadsFirst, IN_GROUPS
    if not request.under_xla:
        kind = OneBeam if count == strategy.rows_per_sentence else InPlaceHeadsFirst
        stages = IN_ONE_LOOP
    length, growth = request.max_length, None
    if strategy.runs_in_stages:
        length = stages.first(length, source_length)
        growth = Growth(stages, functools.partial(_with_room, count))
    num_beams = ops.shape(memory)[0] * (strategy.rows_per_sentence // count)
    layers = heads_first(model.initial_cache(memory, num_beams, count * length), kind)
    to_logits = model.to_logits(Turned.FOR_FEW_ROWS if request.under_xla else Turned.ALWAYS, tokens)
    memories = [{k: v for k, v in layer.items() if k != "self_attention"} for layer in layers]
    rows, fixed = {}, {"layers": memories, "memory_mask": memory_mask}
    if count > 1:
        # Hypotheses read a beam's keys and values through the table of their ancestors: that is
        # all that is ever reordered.
        rows["ancestors"] = ops.zeros((num_beams * count, length), dtype="int32")
        fixed["own"] = ops.tile(ops.arange(count, dtype="int32"), (num_beams,))
    # XLA hands none of these products over to another thread.
    joined = () if request.under_xla else model.decoder.joined_weights()
    start = Cache(rows, [layer["self_attention"] for layer in layers], fixed)
    # Torch compiles nothing, and takes longer for the slices' calls than it gains by them.
    gains_by_slices = request.under_xla and keras.backend.backend() != "torch"

    def step(chosen: Tensor, index: Tensor, cache: Cache, **options: Any) -> Any:
        rows, fixed, by_beam = cache.rows, cache.fixed, None
        if count > 1:
            ancestors = write_column(rows["ancestors"], index, fixed["own"])
            by_beam = ops.reshape(ancestors, (-1, count, size_of(ancestors, 1)))
            rows = {**rows, "ancestors": ancestors}
        own = _equipped(cache.shared, count, joined)
        layers = [
            {**memory, "self_attention": entry}
            for memory, entry in zip(fixed["layers"], own, strict=True)
        ]
        with (
            large_kernels_in_slices(size_of(chosen, 0))
            if gains_by_slices
            else contextlib.nullcontext()
        ):
            logits, layers, *scores = model.decode_step(
                chosen if tokens is None else take(tokens, chosen),
                layers,
                index,
                fixed["memory_mask"],
                ancestors=by_beam,
                to_logits=to_logits,
                **options,
            )
        shared = [layer["self_attention"] for layer in layers]
        return logits, Cache(rows, shared, fixed), *scores

    return step, start, growth


def _with_room(count: int, cache: Cache, length: int | Tensor) -> Cache:
    """Return the cache of `count` hypotheses a beam with room for `length` positions."""
    rows = dict(cache.rows)
    if "ancestors" in rows:
        rows["ancestors"] = lengthened(rows["ancestors"], 1, length)
    # Those of pruned sublayers hold nothing.
    shared = [
        entry.with_room(count * length) if isinstance(entry, HeadsFirst) else entry
        for entry in cache.shared
    ]
    return cache._replace(rows=rows, shared=shared)


def _equipped(caches: list[Any], count: int, joined: Sequence[tuple[Tensor, ...]]) -> list[Any]:
    """Return the caches of all layers with what the layers read of them besides.

    All have the same slots: one of them asks for its size.
    """
    first = next((entry for entry in caches if isinstance(entry, HeadsFirst)), None)
    if first is None:
        return caches
    slots = first.positions(count)
    return [
        entry._replace(slots=slots, joined=weights) if isinstance(entry, HeadsFirst) else entry
        for entry, weights in itertools.zip_longest(caches, joined, fillvalue=())
    ]
