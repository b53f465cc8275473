"""Loops in stages: caches have room for what is decoded so far, not for all that may come.

Attention reads all of a cache at each step, whether something has been written there or not, since
XLA wants shapes that do not change. Outputs are far shorter than the longest one allowed, most of
the time. So a search begins with a small cache, and goes on with a larger one if it has to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from keras import ops

from keras_addnorm.decoding.steps import Cache, Tensor
from keras_addnorm.decoding.task import Task

_FIRST, _GROWTH = 64, 4
"""Positions of the first stage, and how many times as many each further one has. Every stage is
a loop to trace and to compile."""


class State(Protocol):
    """What such a loop carries: a named tuple with a step and a cache."""

    @property
    def index(self) -> Tensor:
        """The step, from 0: the position that is written next."""

    @property
    def cache(self) -> Cache:
        """What the model keeps."""

    def _replace(self, *, cache: Cache) -> Self:
        """Return the same with another cache."""


AnyState = TypeVar("AnyState", bound=State)


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


def while_growing(
    is_running: Callable[[AnyState], Tensor],
    advance: Callable[[AnyState], tuple[AnyState]],
    state: AnyState,
    task: Task,
) -> AnyState:
    """Run a loop over positions as `ops.while_loop` does, with a cache that grows.

    Args:
        is_running: Whether there is a further step.
        advance: Decodes one position.
        state: The state before the first step, its cache with room for all positions.
        task: Says how many there are, and how a cache gets room for some of them.

    Returns:
        The state after the last step.
    """
    for length in [task.max_length] if task.with_room is None else stages(task.max_length):

        def is_running_here(state: AnyState, length: int = length) -> Tensor:
            return ops.logical_and(is_running(state), state.index < length)

        if task.with_room is not None:
            state = state._replace(cache=task.with_room(state.cache, length))
        (state,) = ops.while_loop(is_running_here, advance, (state,))
    return state
