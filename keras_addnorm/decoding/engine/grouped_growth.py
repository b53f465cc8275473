"""Growing caches with static shapes: one loop for each cache length, for groups of sentences.

XLA compiles the loop of each length separately. So there are few lengths, and the first is enough
for most outputs: a little longer than the sources. Once only an eighth of a large batch is
unfinished, the loop stops, and the rest continues as a smaller batch. Sentences that are unfinished
when the cache is full continue in groups of that size, one group after the other.
"""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_addnorm.decoding.engine.base import Grow
from keras_addnorm.decoding.engine.loops import (
    AnyState,
    LoopOf,
    run_until_few,
    select_sentences,
)
from keras_addnorm.decoding.indexing import take
from keras_addnorm.decoding.search_inputs import Hypotheses, SearchInputs
from keras_addnorm.layers.shapes import size_of

Tensor = Any

_FIRST, _MARGIN, _GROWTH = 32, 16, 8
"""The least first cache length, its margin over the source length, and the factor from each length
to the next. The factor is large because every length is a loop to compile."""

_LARGE_BATCH, _GROUPS = 16, 8
"""The least number of sentences of a large batch, and the number of groups it is divided into."""


def stage_lengths(longest: int, source_length: int | Tensor) -> list[int | Tensor]:
    """Return the cache lengths of the successive loops.

    Args:
        longest: Number of positions at most.
        source_length: Number of the sources' positions, S, padding included.

    Returns:
        Lengths, `longest` last. Their number does not depend on S, which may be a tensor. From
        short sources each is at least twice as long as the one before; from long ones some may be
        equal.
    """
    largest = ops.maximum if ops.is_tensor(source_length) else max
    smallest = ops.minimum if ops.is_tensor(source_length) else min
    first, growth, lengths = largest(source_length + _MARGIN, _FIRST), 1, []
    while 2 * growth * _FIRST <= longest:
        lengths.append(smallest(growth * first, longest))
        growth *= _GROWTH
    return [*lengths, longest]


def run_in_groups(
    lengths: list[int | Tensor],
    loop_of: LoopOf[AnyState],
    state: AnyState,
    inputs: SearchInputs,
    grow: Grow,
) -> Hypotheses:
    """Run one loop for each cache length; each continues what the loop before left unfinished.

    Args:
        lengths: The cache lengths.
        loop_of: Returns the loop for some inputs.
        state: The state before, its cache of the first length.
        inputs: The sentences.
        grow: Grows the cache to more positions.

    Returns:
        The hypotheses of all sentences.
    """
    here, *further = lengths
    loop, size = loop_of(inputs), inputs.batch_size
    few = _few(size) if further else 0
    state = run_until_few(loop, state, few, here)
    found, is_running = loop.hypotheses(state), loop.is_running(state)
    if not further:
        return found
    group_size = ops.where(few > 0, few, size) if ops.is_tensor(few) else few or size

    def run_group(found: Hypotheses, waits: Tensor) -> tuple[Hypotheses, Tensor]:
        rank = _rank(waits, is_running)
        group = _in_order(rank)[:group_size]
        part = select_sentences(state, group, size)
        part = part._replace(cache=grow(part.cache, further[0]))
        new = run_in_groups(further, loop_of, part, inputs.of(group), grow)
        return _merge(found, new, rank, group_size), ops.logical_and(waits, rank >= group_size)

    (found, _) = ops.while_loop(lambda found, waits: ops.any(waits), run_group, (found, is_running))
    return found


def _few(number: int | Tensor) -> int | Tensor:
    """Return how many unfinished sentences of a batch continue as a smaller one; 0 for never."""
    if isinstance(number, int):
        return number // _GROUPS if number >= _LARGE_BATCH else 0
    return ops.where(number < _LARGE_BATCH, 0, number // _GROUPS)


def _rank(waits: Tensor, waited: Tensor) -> Tensor:
    """Return the place of each sentence in the order of groups, `(B,)`.

    Waiting sentences come first. Finished sentences fill up the last group; sentences that an
    earlier group has continued come last, because they would run a second time.
    """
    # All pairs are compared: compiling a sort takes XLA longer than running the comparisons.
    number = size_of(waits, 0)
    places = ops.arange(number, dtype="int32")
    priority = ops.where(waits, 0, 1 + ops.cast(waited, "int32"))
    keys = priority * number + places
    return ops.sum(ops.cast(keys < ops.expand_dims(keys, -1), "int32"), axis=-1)


def _in_order(rank: Tensor) -> Tensor:
    """Return the sentences in the order of their ranks, `(B,)`."""
    places = ops.arange(size_of(rank, 0), dtype="int32")
    is_it = ops.equal(rank, ops.expand_dims(places, -1))
    return ops.sum(ops.where(is_it, places, 0), axis=-1)


def _merge(found: Hypotheses, new: Hypotheses, rank: Tensor, size: int | Tensor) -> Hypotheses:
    """Return the hypotheses, those of the first `size` ranks replaced by new ones."""
    places = ops.minimum(rank, ops.cast(size - 1, "int32"))

    def merged(before: Tensor, after: Tensor) -> Tensor:
        is_new = ops.reshape(rank < size, (-1, *[1] * (len(before.shape) - 1)))
        return ops.where(is_new, take(after, places), before)

    return Hypotheses(
        merged(found.sequences, new.sequences),
        merged(found.scores, new.scores),
        ops.minimum(found.bad_step, new.bad_step),
    )
