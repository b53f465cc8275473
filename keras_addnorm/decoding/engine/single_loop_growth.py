"""Growing caches with dynamic shapes: one loop serves all cache lengths and batch sizes.

For TensorFlow without XLA. The cache doubles whenever it is full, and finished sentences are
dropped from the batch once they are half of it.
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
from keras_addnorm.decoding.engine.tf_ops import hide_static_shape
from keras_addnorm.decoding.indexing import take
from keras_addnorm.decoding.search_inputs import Hypotheses, SearchInputs

Tensor = Any

_FIRST, _GROWTH = 32, 2
"""The first cache length, and the factor from each length to the next."""


def first_length(longest: int) -> Tensor:
    """Return the initial length of caches, hidden from tracing."""
    return hide_static_shape(min(_FIRST, longest))


def run_in_one_loop(
    loop_of: LoopOf[AnyState],
    state: AnyState,
    inputs: SearchInputs,
    num_hypotheses: int,
    grow: Grow,
) -> Hypotheses:
    """Run a loop with a growing cache, on the sentences that are unfinished.

    Args:
        loop_of: Returns the loop for some inputs.
        state: The state before, its cache of the first length.
        inputs: The sentences, of a number that is unknown while they are traced.
        num_hypotheses: Number of hypotheses of each sentence.
        grow: Grows the cache to more positions.

    Returns:
        The hypotheses of all sentences.
    """
    longest, number = inputs.max_length, inputs.batch_size

    def run_stage(
        sentences: Tensor, length: Tensor, state: AnyState, found: Hypotheses
    ) -> tuple[Tensor, Tensor, AnyState, Hypotheses]:
        size, loop = ops.shape(sentences)[0], loop_of(inputs.of(sentences))
        state = run_until_few(loop, state, size // 2, length)
        found = _update(found, loop.hypotheses(state), sentences)
        (going,) = ops.nonzero(loop.is_running(state))
        longer = ops.minimum(_GROWTH * length, ops.cast(longest, "int32"))
        length = ops.where(state.index < length, length, longer)
        state = select_sentences(state, going, size)
        state = state._replace(cache=grow(state.cache, length))
        return take(sentences, going), length, state, found

    def goes_on(sentences: Tensor, length: Tensor, state: AnyState, found: Hypotheses) -> Tensor:
        return ops.logical_and(ops.shape(sentences)[0] > 0, state.index < longest)

    nothing = Hypotheses(
        ops.full((number, num_hypotheses, longest), inputs.ids.pad_id, dtype="int32"),
        ops.zeros((number, num_hypotheses), dtype="float32"),
        ops.convert_to_tensor(longest, dtype="int32"),
    )
    start = (ops.arange(number, dtype="int32"), first_length(longest), state, nothing)
    *_, found = ops.while_loop(goes_on, run_stage, start)
    return found


def _update(found: Hypotheses, new: Hypotheses, sentences: Tensor) -> Hypotheses:
    """Return the hypotheses, those of some sentences replaced by new ones."""
    places = ops.expand_dims(sentences, -1)
    return Hypotheses(
        ops.scatter_update(found.sequences, places, new.sequences),
        ops.scatter_update(found.scores, places, new.scores),
        ops.minimum(found.bad_step, new.bad_step),
    )
