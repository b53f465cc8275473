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
        is_running: Which sentences have a further step, `(B,)`.
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
    """Run a loop over positions until no sentence has a further step.

    Args:
        loop_of: Returns the loop for a task, of all sentences or of some.
        state: The state before the first step, its cache with room for all positions.
        task: What to decode. It says how caches grow, and how many sentences go on by themselves.

    Returns:
        What was found for all of them.
    """
    if task.growth is None:
        return _run(loop_of, state, task, [task.max_length])
    lengths = stages(task.max_length)
    state = state._replace(cache=task.growth.with_room(state.cache, lengths[0]))
    return _run(loop_of, state, task, lengths)


def _run(loop_of: LoopOf[AnyState], state: AnyState, task: Task, lengths: list[int]) -> Outcome:
    here, *further = lengths
    loop = loop_of(task)
    few = _few(task.batch_size) if further else 0

    def goes_on(state: AnyState) -> Tensor:
        is_running = ops.sum(ops.cast(loop.is_running(state), "int32")) > few
        return ops.logical_and(is_running, state.index < here)

    (state,) = ops.while_loop(goes_on, lambda state: (loop.advance(state),), (state,))
    outcome = loop.outcome(state)
    if task.growth is None or not further:
        return outcome
    growth = task.growth

    def run_group(outcome: Outcome, waits: Tensor) -> tuple[Outcome, Tensor]:
        group = _first(waits, growth.group_size(waits))
        part = _of_sentences(state, group, task.batch_size)
        part = part._replace(cache=growth.with_room(part.cache, further[0]))
        found = _run(loop_of, part, task.of(group), further)
        return _put(outcome, group, found), _without(waits, group)

    (outcome, _) = ops.while_loop(
        lambda outcome, waits: ops.any(waits), run_group, (outcome, loop.is_running(state))
    )
    return outcome


def a_quarter(waits: Tensor) -> int | Tensor:
    """Return how many sentences go on together where XLA wants to know it: of a few, all.

    Args:
        waits: `(B,)`, which sentences wait for it.

    Returns:
        Their number.
    """
    number = size_of(waits, 0)
    if isinstance(number, int):
        return _few(number) or number
    return ops.where(number < _LARGE, number, number // _SHARE)


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


def _first(waits: Tensor, count: int | Tensor) -> Tensor:
    """Return the places of the first `count` sentences that wait; of others, if there are fewer."""
    number = size_of(waits, 0)
    places = ops.arange(number, dtype="int32")
    return ops.argsort(ops.where(waits, places, number + places))[:count]


def _of_sentences(state: AnyState, group: Tensor, number: int | Tensor) -> AnyState:
    """Return the state of a group of sentences."""

    def take(x: Tensor) -> Tensor:
        # What pruned sublayers keep has no columns.
        if len(x.shape) == 0 or 0 in x.shape[1:]:
            return x
        rest = [size_of(x, axis) for axis in range(1, len(x.shape))]
        blocks = ops.reshape(x, (number, -1, *rest))
        return ops.reshape(ops.take(blocks, group, axis=0), (-1, *rest))

    part: AnyState = keras.tree.map_structure(take, state)
    return part


def _put(outcome: Outcome, group: Tensor, found: Outcome) -> Outcome:
    """Return the outcome with what was found for a group."""
    places = ops.expand_dims(group, -1)
    return Outcome(
        ops.scatter_update(outcome.sequences, places, found.sequences),
        ops.scatter_update(outcome.scores, places, found.scores),
        ops.minimum(outcome.bad_step, found.bad_step),
    )


def _without(waits: Tensor, group: Tensor) -> Tensor:
    places = ops.arange(size_of(waits, 0), dtype="int32")
    is_here = ops.any(ops.equal(ops.expand_dims(places, -1), group), axis=-1)
    return ops.logical_and(waits, ops.logical_not(is_here))
