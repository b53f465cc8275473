"""The loop of every search: for each position, step, choose, reorder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from keras import ops

from keras_addnorm.decoding.cache import Cache, reorder_rows
from keras_addnorm.decoding.engine.loops import AnyState, Loop, Tensor
from keras_addnorm.decoding.search_inputs import Hypotheses, SearchInputs
from keras_addnorm.decoding.step_model import StepModel


class Search(Protocol[AnyState]):
    """An algorithm, for the sentences of some inputs: how hypotheses are chosen and compared."""

    def newest_tokens(self, state: AnyState) -> Tensor:
        """Return the token that each row reads next, `(N,)`."""

    def choose(
        self, state: AnyState, logits: Tensor, cache: Cache
    ) -> tuple[AnyState, Tensor | None]:
        """Choose the hypotheses that go on.

        Args:
            state: The state before the step.
            logits: Of the next token, `(N, V)`.
            cache: The cache after the step, of the rows as they were.

        Returns:
            The state at the next position, whose cache does not count yet; and the row that each
            hypothesis goes on from, `(N,)`, or `None` if each goes on from itself.
        """

    def is_running(self, state: AnyState) -> Tensor:
        """Return which sentences have not ended, `(B,)`."""

    def hypotheses(self, state: AnyState) -> Hypotheses:
        """Return what was found; of sentences that still run, anything."""


def search_positions(
    search_of: Callable[[SearchInputs], Search[AnyState]],
    state: AnyState,
    model: StepModel,
    inputs: SearchInputs,
    num_hypotheses: int,
) -> Hypotheses:
    """Decode position after position until each sentence has ended.

    Args:
        search_of: Returns the algorithm for all sentences, or for those that are left.
        state: The state before the first step, with the model's cache.
        model: The decoder.
        inputs: All sentences.
        num_hypotheses: How many hypotheses the algorithm keeps of each sentence, M.

    Returns:
        What was found for all of them.
    """

    def loop_of(inputs: SearchInputs) -> Loop[AnyState]:
        search = search_of(inputs)

        def advance(state: AnyState) -> AnyState:
            # Step: the decoder reads the newest token of each hypothesis. (N,) -> (N, V)
            logits, cache = model.step(search.newest_tokens(state), state.index, state.cache)
            # Choose: which hypotheses go on, and with which token.
            state, origin = search.choose(state, logits, cache)
            # Reorder: the cache follows the hypotheses that go on.
            return state._replace(cache=cache if origin is None else reorder_rows(cache, origin))

        return Loop(search.is_running, advance, search.hypotheses)

    return model.engine.run_with_growing_cache(loop_of, state, inputs, num_hypotheses, model.grow)


def all_done(is_done: Tensor, count: int) -> Tensor:
    """Return which sentences have nothing left to do.

    Args:
        is_done: `(B count,)`, of the parts of each sentence, side by side.
        count: Their number for each sentence.

    Returns:
        `(B,)`.
    """
    return is_done if count == 1 else ops.all(ops.reshape(is_done, (-1, count)), axis=1)
