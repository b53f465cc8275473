"""Loops in stages: for the positions decoded so far, and for the sentences that still run.

Attention reads all of a cache at each step, whether something has been written there or not.
Outputs are far shorter than the longest one allowed, most of the time. So a search begins with a
small cache, and goes on with a larger one if it has to. And a step takes as long for sentences that
have ended as for those that have not. So these are left behind.

XLA wants shapes that do not change: each stage is a loop of its own, to trace and to compile
(`IN_GROUPS`). There are few of them, then, and the first is long enough for most outputs: a little
longer than the sources. A large batch is left when an eighth of it still runs: these sentences go
on by themselves, and those that are left at the end of a stage in groups of that size, one after
the other. Where sizes may change, one loop serves all stages (`IN_ONE_LOOP`), and there are as many
as it pays to have: a batch is left when half of it still runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import keras
from keras import ops

from keras_addnorm.decoding.compilation import of_any_size, take
from keras_addnorm.decoding.steps import Cache, Tensor
from keras_addnorm.decoding.task import Stages, Task
from keras_addnorm.layers.shapes import size_of

_FIRST, _MARGIN, _GROWTH = 32, 16, 8
"""Positions of the first stage at least, how many more it has than the source, and how many times
as many each further one has, where every stage is a loop to compile."""

_LARGE, _SHARE = 16, 8
"""Sentences of a large batch, and which part of it goes on by itself there: one of 8."""

_FIRST_OF_ONE_LOOP, _GROWTH_IN_ONE_LOOP = 32, 2
"""Likewise where one loop serves all stages."""


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
WithRoom = Callable[[Cache, int | Tensor], Cache]


def run_in_stages(
    loop_of: LoopOf[AnyState], state: AnyState, task: Task, num_hypotheses: int
) -> Outcome:
    """Run a loop over positions until each sentence has ended, or all positions are decoded.

    Args:
        loop_of: Returns the loop for a task, of all sentences or of some.
        state: The state before the first step, its cache with room for the first stage.
        task: What to decode. Its growth says what the stages are.
        num_hypotheses: How many hypotheses the loop's outcome has of each sentence, M.

    Returns:
        What was found for all of them.
    """
    if task.growth is None:
        loop = loop_of(task)
        return loop.outcome(_until_few_run(0, task.max_length, loop, state))
    growth = task.growth
    return growth.stages.run(loop_of, state, task, num_hypotheses, growth.with_room)


def lengths(longest: int, source_length: int | Tensor) -> list[int | Tensor]:
    """Return the lengths up to which the stages of `IN_GROUPS` decode.

    Args:
        longest: Number of positions at most.
        source_length: Number of the sources' positions, S, padding included.

    Returns:
        Lengths, `longest` last: as many for each S, which may be unknown as yet. From short sources
        each is at least twice as long as the one before; from long ones some may be equal.
    """
    largest = ops.maximum if ops.is_tensor(source_length) else max
    smallest = ops.minimum if ops.is_tensor(source_length) else min
    first, growth, stages = largest(source_length + _MARGIN, _FIRST), 1, []
    while 2 * growth * _FIRST <= longest:
        stages.append(smallest(growth * first, longest))
        growth *= _GROWTH
    return [*stages, longest]


def _run_in_groups(
    loop_of: LoopOf[AnyState], state: AnyState, task: Task, num_hypotheses: int, with_room: WithRoom
) -> Outcome:
    ends = lengths(task.max_length, size_of(task.source_ids, 1))
    return _run_to(ends, loop_of, state, task, with_room)


def _run_to(
    ends: list[int | Tensor],
    loop_of: LoopOf[AnyState],
    state: AnyState,
    task: Task,
    with_room: WithRoom,
) -> Outcome:
    """Run a loop in groups, in stages that decode up to these lengths."""
    here, *further = ends
    loop, size = loop_of(task), task.batch_size
    few = _few(size) if further else 0
    state = _until_few_run(few, here, loop, state)
    outcome, is_running = loop.outcome(state), loop.is_running(state)
    if not further:
        return outcome
    group_size = ops.where(few > 0, few, size) if ops.is_tensor(few) else few or size

    def run_group(outcome: Outcome, waits: Tensor) -> tuple[Outcome, Tensor]:
        rank = _rank(waits, is_running)
        group = _places(rank)[:group_size]
        part = _of_sentences(state, group, size)
        part = part._replace(cache=with_room(part.cache, further[0]))
        found = _run_to(further, loop_of, part, task.of(group), with_room)
        waits_on = ops.logical_and(waits, rank >= group_size)
        return _merged(outcome, found, rank, group_size), waits_on

    (outcome, _) = ops.while_loop(
        lambda outcome, waits: ops.any(waits), run_group, (outcome, is_running)
    )
    return outcome


def _first_of_one_loop(longest: int) -> Tensor:
    """Return the length up to which the first stage decodes, unknown while the loop is traced."""
    return of_any_size(min(_FIRST_OF_ONE_LOOP, longest))


def _run_in_one_loop(
    loop_of: LoopOf[AnyState], state: AnyState, task: Task, num_hypotheses: int, with_room: WithRoom
) -> Outcome:
    longest, number = task.max_length, task.batch_size

    def run_stage(
        sentences: Tensor, length: Tensor, state: AnyState, outcome: Outcome
    ) -> tuple[Tensor, Tensor, AnyState, Outcome]:
        size, loop = ops.shape(sentences)[0], loop_of(task.of(sentences))
        state = _until_few_run(size // 2, length, loop, state)
        outcome = _with(outcome, loop.outcome(state), sentences)
        (going,) = ops.nonzero(loop.is_running(state))
        longer = ops.minimum(_GROWTH_IN_ONE_LOOP * length, longest)
        length = ops.where(state.index < length, length, longer)
        state = _of_sentences(state, going, size)
        state = state._replace(cache=with_room(state.cache, length))
        return take(sentences, going), length, state, outcome

    def goes_on(sentences: Tensor, length: Tensor, state: AnyState, outcome: Outcome) -> Tensor:
        return ops.logical_and(ops.shape(sentences)[0] > 0, state.index < longest)

    nothing = Outcome(
        ops.full((number, num_hypotheses, longest), task.ids.pad_id, dtype="int32"),
        ops.zeros((number, num_hypotheses), dtype="float32"),
        ops.convert_to_tensor(longest, dtype="int32"),
    )
    start = (ops.arange(number, dtype="int32"), _first_of_one_loop(longest), state, nothing)
    *_, outcome = ops.while_loop(goes_on, run_stage, start)
    return outcome


def _until_few_run(
    few: int | Tensor, end: int | Tensor, loop: Loop[AnyState], state: AnyState
) -> AnyState:
    """Return the state when no more than a few sentences run, or when all positions are decoded."""

    def goes_on(state: AnyState) -> Tensor:
        num_running = ops.sum(ops.cast(loop.is_running(state), "int32"))
        return ops.logical_and(num_running > few, state.index < end)

    (state,) = ops.while_loop(goes_on, lambda state: (loop.advance(state),), (state,))
    return state


IN_GROUPS = Stages(lambda *sizes: lengths(*sizes)[0], _run_in_groups)
"""A loop for each stage, for groups whose sizes are known if that of the batch is. The room of a
stage is known if the sources' length is."""

IN_ONE_LOOP = Stages(lambda longest, _: _first_of_one_loop(longest), _run_in_one_loop)
"""One loop for all stages, for all sentences that still run. The sizes that change have to be
unknown while it is traced."""


def all_of_each(is_done: Tensor, count: int) -> Tensor:
    """Return which sentences are done with all that they have `count` of, side by side.

    Args:
        is_done: `(B count,)`, which of these are done.
        count: Their number for each sentence.

    Returns:
        `(B,)`.
    """
    return is_done if count == 1 else ops.all(ops.reshape(is_done, (-1, count)), axis=1)


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


def _with(outcome: Outcome, found: Outcome, sentences: Tensor) -> Outcome:
    """Return the outcome with what was found for some sentences."""
    places = ops.expand_dims(sentences, -1)
    return Outcome(
        ops.scatter_update(outcome.sequences, places, found.sequences),
        ops.scatter_update(outcome.scores, places, found.scores),
        ops.minimum(outcome.bad_step, found.bad_step),
    )


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
