"""Growing caches where shapes do not change: a loop for each length, for groups of sentences.

XLA compiles each stage as a loop of its own. There are few of them, then, and the first is long
enough for most outputs: a little longer than the sources. Once only an eighth of a large batch is
unfinished, the loop stops, and the rest goes on as a smaller batch. Sentences that are unfinished
at the end of a stage go on in groups of that size, one after the other.
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
"""Positions of the first stage at least, how many more it has than the source, and how many times
as many each further one has: every stage is a loop to compile."""

_LARGE_BATCH, _GROUPS = 16, 8
"""Sentences of a large batch, and into how many groups it is divided."""


def stage_lengths(longest: int, source_length: int | Tensor) -> list[int | Tensor]:
    """Return the lengths up to which the stages decode.

    Args:
        longest: Number of positions at most.
        source_length: Number of the sources' positions, S, padding included.

    Returns:
        Lengths, `longest` last: as many for each S, which may be unknown as yet. From short sources
        each is at least twice as long as the one before; from long ones some may be equal.
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
    """Run a loop in stages, each for groups of the sentences that the one before has not finished.

    Args:
        lengths: The lengths up to which the stages decode.
        loop_of: Returns the loop for some inputs.
        state: The state before, its cache of the first length.
        inputs: The sentences.
        grow: Makes room for more positions.

    Returns:
        What was found.
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
    """Return how many unfinished sentences of a batch go on as a smaller one; 0 for never."""
    if isinstance(number, int):
        return number // _GROUPS if number >= _LARGE_BATCH else 0
    return ops.where(number < _LARGE_BATCH, 0, number // _GROUPS)


def _rank(waits: Tensor, waited: Tensor) -> Tensor:
    """Return the place of each sentence in the order of groups, `(B,)`.

    First come those that wait. A group that they do not fill is filled up with those that have
    ended, and last with those that have had their turn: they would run once more.
    """
    # All pairs are compared: XLA takes longer to compile a sort than this takes to run.
    number = size_of(waits, 0)
    places = ops.arange(number, dtype="int32")
    turn = ops.where(waits, 0, ops.where(waited, 2, 1))
    keys = turn * number + places
    return ops.sum(ops.cast(keys < ops.expand_dims(keys, -1), "int32"), axis=-1)


def _in_order(rank: Tensor) -> Tensor:
    """Return the sentences in the order of their ranks, `(B,)`."""
    places = ops.arange(size_of(rank, 0), dtype="int32")
    is_it = ops.equal(rank, ops.expand_dims(places, -1))
    return ops.sum(ops.where(is_it, places, 0), axis=-1)


def _merge(found: Hypotheses, new: Hypotheses, rank: Tensor, size: int | Tensor) -> Hypotheses:
    """Return what was found, for the first `size` ranks anew."""
    places = ops.minimum(rank, size - 1)

    def merged(before: Tensor, after: Tensor) -> Tensor:
        is_new = ops.reshape(rank < size, (-1, *[1] * (len(before.shape) - 1)))
        return ops.where(is_new, take(after, places), before)

    return Hypotheses(
        merged(found.sequences, new.sequences),
        merged(found.scores, new.scores),
        ops.minimum(found.bad_step, new.bad_step),
    )
