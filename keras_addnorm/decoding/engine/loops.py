"""Loops over positions, as functions of what they carry."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, Protocol, Self, TypeVar

import keras
from keras import ops

from keras_addnorm.decoding.cache import Cache
from keras_addnorm.decoding.indexing import take
from keras_addnorm.decoding.search_inputs import Hypotheses, SearchInputs
from keras_addnorm.layers.shapes import size_of

Tensor = Any


class State(Protocol):
    """What a loop carries: a named tuple with a step and a cache.

    The first axis of every tensor counts sentences, or equal blocks of rows of each sentence; a
    scalar belongs to all of them.
    """

    @property
    def index(self) -> Tensor:
        """The step, from 0: the position that is written next."""

    @property
    def cache(self) -> Cache:
        """What the decoder keeps."""

    def _replace(self, *, cache: Cache) -> Self:
        """Return the same with another cache."""


AnyState = TypeVar("AnyState", bound=State)


@dataclasses.dataclass(frozen=True)
class Loop(Generic[AnyState]):
    """A loop over the positions of some sentences.

    Args:
        is_running: Which sentences have not ended, `(B,)`.
        advance: Decodes one position. Sentences that do not run stay as they are.
        hypotheses: Says what was found; of sentences that still run, anything.
    """

    is_running: Callable[[AnyState], Tensor]
    advance: Callable[[AnyState], AnyState]
    hypotheses: Callable[[AnyState], Hypotheses]


LoopOf = Callable[[SearchInputs], Loop[AnyState]]


def run_until_few(
    loop: Loop[AnyState], state: AnyState, few: int | Tensor, length: int | Tensor
) -> AnyState:
    """Run a loop until no more than a few sentences run, or some positions are decoded.

    Args:
        loop: The loop.
        state: The state before.
        few: The number of sentences.
        length: The number of positions.

    Returns:
        The state after.
    """

    def goes_on(state: AnyState) -> Tensor:
        num_running = ops.sum(ops.cast(loop.is_running(state), "int32"))
        return ops.logical_and(num_running > few, state.index < length)

    (state,) = ops.while_loop(goes_on, lambda state: (loop.advance(state),), (state,))
    return state


def select_sentences(state: AnyState, sentences: Tensor, number: int | Tensor) -> AnyState:
    """Return the state of some sentences.

    Args:
        state: The state of all.
        sentences: Their places, `(b,)` int32.
        number: Number of all sentences, B.

    Returns:
        The state.
    """

    def selected(x: Tensor) -> Tensor:
        # What pruned sublayers keep has no columns.
        if len(x.shape) == 0 or 0 in x.shape[1:]:
            return x
        rest = [size_of(x, axis) for axis in range(1, len(x.shape))]
        blocks = ops.reshape(x, (number, -1, *rest))
        return ops.reshape(take(blocks, sentences), (-1, *rest))

    part: AnyState = keras.tree.map_structure(selected, state)
    return part
