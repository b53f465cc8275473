"""Loops in stages: for the positions decoded so far, and for the sentences that still run.

Attention reads all of a cache at each step, whether something has been written there or not, since
XLA wants shapes that do not change. Outputs are far shorter than the longest one allowed, most of
the time. So a search begins with a small cache, and goes on with a larger one if it has to. And a
step takes as long for sentences that have ended as for those that have not. So a large batch is
left when a quarter of it still runs: these sentences go on by themselves, and those that are left
at the end of a stage in groups of that size, one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import keras
from keras import ops

from keras_addnorm.decoding.compilation import take
from keras_addnorm.decoding.steps import Cache, Tensor
from keras_addnorm.decoding.task import Task
from keras_addnorm.layers.shapes import size_of

_FIRST, _GROWTH = 64, 4
"""Positions of the first stage, and how many times as many each further one has. Every stage is
a loop to trace and to compile."""

_LARGE, _SHARE = 16, 4
"""Sentences of a large batch, and which part of it goes on by itself: one of 4."""


class State(Protocol):
    """What such a loop carries: a named tuple with a step and a cache.

    The first axis of every tensor counts sentences, or equal blocks of rows of each sentence; a
    scalar belongs to all of them.
    """

    @property
    def index(self) -> Tensor:
        """The step, from 0: the position that is written next."""

    @property
    def cache(self) -> Cache:
        """What the model keeps."""

    def _replace(self, *, cache: Cache) -> Self:
        """Return the same with another cache."""


AnyState = TypeVar("AnyState", bound=State)


class Outcome(NamedTuple):
    """What a loop has found.

    Args:
        sequences: All hypotheses, `(B, M, T)`.
        scores: Their scores, `(B, M)`.
        bad_step: See `Found`.
    """

    sequences: Tensor
    scores: Tensor
    bad_step: Tensor


@dataclasses.dataclass(frozen=True)
class Loop(Generic[AnyState]):
    """A search as functions of what its loop carries.

    Args:
        is_running: Which sentences have not ended, `(B,)`.
        advance: Decodes one position. Sentences that do not run stay as they are.
        outcome: Says what was found; of sentences that still run, anything.
    """

    is_running: Callable[[AnyState], Tensor]
    advance: Callable[[AnyState], AnyState]
    outcome: Callable[[AnyState], Outcome]


LoopOf = Callable[[Task], Loop[AnyState]]


def stages(longest: int) -> list[int]:
    """Return the lengths up to which the stages decode.

    Args:
        longest: Number of positions at most.

    Returns:
        Rising lengths, `longest` last. What is less than twice as long as a stage is no stage of
        its own.
    """
    lengths = [longest]
    stage = _FIRST
    while 2 * stage <= longest:
        lengths.insert(-1, stage)
        stage *= _GROWTH
    return lengths


def run_in_stages(loop_of: LoopOf[AnyState], state: AnyState, task: Task) -> Outcome:
    """Run a loop over positions until each sentence has ended, or all positions are decoded.

    Args:
        loop_of: Returns the loop for a task, of all sentences or of some.
        state: The state before the first step, its cache with room for the first stage.
        task: What to decode. It says how caches grow, and how many sentences go on by themselves.

    Returns:
        What was found for all of them.
    """
    lengths = [task.max_length] if task.growth is None else stages(task.max_length)
    return _run(loop_of, state, task, lengths)


def _run(loop_of: LoopOf[AnyState], state: AnyState, task: Task, lengths: list[int]) -> Outcome:
    here, *further = lengths
    loop = loop_of(task)
    few = _few(task.batch_size) if further else 0

    def goes_on(state: AnyState) -> Tensor:
        num_running = ops.sum(ops.cast(loop.is_running(state), "int32"))
        return ops.logical_and(num_running > few, state.index < here)

    (state,) = ops.while_loop(goes_on, lambda state: (loop.advance(state),), (state,))
    outcome = loop.outcome(state)
    if task.growth is None or not further:
        return outcome
    growth, is_running = task.growth, loop.is_running(state)

    def run_group(outcome: Outcome, waits: Tensor) -> tuple[Outcome, Tensor]:
        size, rank = growth.group_size(waits), _rank(waits, is_running)
        group = _places(rank)[:size]
        part = _of_sentences(state, group, task.batch_size)
        part = part._replace(cache=growth.with_room(part.cache, further[0]))
        found = _run(loop_of, part, task.of(group), further)
        waits_on = ops.logical_and(waits, rank >= size)
        return _merged(outcome, found, rank, size), waits_on

    (outcome, _) = ops.while_loop(
        lambda outcome, waits: ops.any(waits), run_group, (outcome, is_running)
    )
    return outcome


def all_of_each(is_done: Tensor, count: int) -> Tensor:
    """Return which sentences are done with all that they have `count` of, side by side.

    Args:
        is_done: `(B count,)`, which of these are done.
        count: Their number for each sentence.

    Returns:
        `(B,)`.
    """
    return is_done if count == 1 else ops.all(ops.reshape(is_done, (-1, count)), axis=1)


def a_quarter(waits: Tensor) -> int | Tensor:
    """Return how many sentences go on together where XLA wants to know it: of a few, all.

    Args:
        waits: `(B,)`, which sentences wait for it.

    Returns:
        Their number.
    """
    number = size_of(waits, 0)
    few = _few(number)
    return few or number if isinstance(few, int) else ops.where(few > 0, few, number)


def all_that_wait(waits: Tensor) -> Tensor:
    """Return how many sentences go on together where nobody needs to know it before.

    Args:
        waits: `(B,)`, which sentences wait for it.

    Returns:
        Their number.
    """
    return ops.sum(ops.cast(waits, "int32"))


def _few(number: int | Tensor) -> int | Tensor:
    """Return how many sentences of a batch are so few that the others are a waste of time."""
    if isinstance(number, int):
        return number // _SHARE if number >= _LARGE else 0
    return ops.where(number < _LARGE, 0, number // _SHARE)


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


def _places(rank: Tensor) -> Tensor:
    """Return the sentences in the order of their ranks, `(B,)`."""
    places = ops.arange(size_of(rank, 0), dtype="int32")
    is_it = ops.equal(rank, ops.expand_dims(places, -1))
    return ops.sum(ops.where(is_it, places, 0), axis=-1)


def _of_sentences(state: AnyState, group: Tensor, number: int | Tensor) -> AnyState:
    """Return the state of a group of sentences."""

    def of_group(x: Tensor) -> Tensor:
        # What pruned sublayers keep has no columns.
        if len(x.shape) == 0 or 0 in x.shape[1:]:
            return x
        rest = [size_of(x, axis) for axis in range(1, len(x.shape))]
        blocks = ops.reshape(x, (number, -1, *rest))
        return ops.reshape(take(blocks, group), (-1, *rest))

    part: AnyState = keras.tree.map_structure(of_group, state)
    return part


def _merged(outcome: Outcome, found: Outcome, rank: Tensor, size: int | Tensor) -> Outcome:
    """Return the outcome, for the first `size` ranks what was found for them."""
    places = ops.minimum(rank, size - 1)

    def merged(before: Tensor, new: Tensor) -> Tensor:
        is_new = ops.reshape(rank < size, (-1, *[1] * (len(before.shape) - 1)))
        return ops.where(is_new, take(new, places), before)

    return Outcome(
        merged(outcome.sequences, found.sequences),
        merged(outcome.scores, found.scores),
        ops.minimum(outcome.bad_step, found.bad_step),
    )
