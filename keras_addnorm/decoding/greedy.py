"""Greedy search, and the loop of all searches whose rows do not depend on each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from keras_addnorm.decoding import length_penalties
from keras_addnorm.decoding.length_penalties import CoverageLike, LengthPenaltyLike
from keras_addnorm.decoding.search_inputs import Cache, Hypotheses, SearchInputs, SearchResult
from keras_addnorm.decoding.strategy import (
    NextTokens,
    StepModel,
    Strategy,
    all_done,
    search_positions,
)
from keras_addnorm.decoding.tensor_ops import first_bad_step, is_possible, select, write_column

Tensor = Any
ChooseTokens = Callable[[Tensor, Tensor], Tensor]
"""`choose(log_p (N, V), index) -> tokens (N,)`, int32."""


class _State(NamedTuple):
    """What the loop carries. N rows."""

    index: Tensor
    tokens: Tensor  # (N,), read at the next step
    sequences: Tensor  # (N, T)
    sums: Tensor  # (N,), log-probabilities
    score_bonus: Tensor  # (N,), what is added to scores; () if nothing is
    is_done: Tensor  # (N,)
    bad_step: Tensor
    cache: Cache


@dataclasses.dataclass(frozen=True)
class _RowSearch:
    """The algorithm, for the rows of some sentences."""

    strategy: Strategy
    inputs: SearchInputs
    model: StepModel
    next_tokens: NextTokens
    choose_tokens: ChooseTokens

    def newest_tokens(self, state: _State) -> Tensor:
        return state.tokens

    def choose(self, state: _State, logits: Tensor, cache: Cache) -> tuple[_State, None]:
        """Append the chosen token to each row that is not done."""
        ids = self.inputs.ids
        # (N, V) -> (N,)
        log_p, is_bad = self.next_tokens.read(logits, state.sequences, state.index)
        chosen = self.choose_tokens(log_p, state.index)
        gain = select(log_p, ops.expand_dims(chosen, -1))[:, 0]
        tokens = ops.where(state.is_done, ids.pad_id, chosen)
        sums = ops.where(state.is_done, state.sums, state.sums + gain)
        has_ended = ops.logical_or(
            ops.equal(tokens, ids.end_id), ops.logical_not(is_possible(sums))
        )
        score_bonus = state.score_bonus
        if self.model.score_bonus:
            score_bonus = ops.where(state.is_done, score_bonus, self.model.score_bonus(cache))
        is_bad = ops.logical_and(is_bad, ops.logical_not(state.is_done))
        state = _State(
            index=state.index + 1,
            tokens=tokens,
            sequences=write_column(state.sequences, state.index, tokens),
            sums=sums,
            score_bonus=score_bonus,
            is_done=ops.logical_or(state.is_done, has_ended),
            bad_step=first_bad_step(state.bad_step, is_bad, state.index),
            cache=cache,
        )
        return state, None

    def is_running(self, state: _State) -> Tensor:
        return ops.logical_not(all_done(state.is_done, self.strategy.rows_per_sentence))

    def hypotheses(self, state: _State) -> Hypotheses:
        """Return each row as a hypothesis, with its score."""
        is_token = ops.not_equal(state.sequences, self.inputs.ids.pad_id)
        lengths = ops.sum(ops.cast(is_token, "int32"), axis=-1)
        scores = state.sums / length_penalties.get(self.strategy.length_penalty).divisor(lengths)
        if self.model.score_bonus:
            scores = scores + state.score_bonus
        # (N, T) -> (B, M, T) and (N,) -> (B, M)
        count = self.strategy.rows_per_sentence
        return Hypotheses(
            ops.reshape(state.sequences, (-1, count, self.inputs.max_length)),
            ops.reshape(scores, (-1, count)),
            state.bad_step,
        )


def search_rows(
    strategy: Strategy,
    choose_tokens_of: Callable[[SearchInputs], ChooseTokens],
    model: StepModel,
    inputs: SearchInputs,
) -> SearchResult:
    """Decode every row until it ends, independently of the others.

    A row that may choose no token ends.

    Args:
        strategy: Says how many rows a sentence has and how they are scored.
        choose_tokens_of: Returns what chooses the next tokens of the rows of some inputs.
        model: The decoder.
        inputs: What to decode.

    Returns:
        All rows, the best of each sentence first.
    """
    ids, count = inputs.ids, strategy.rows_per_sentence
    num_rows = inputs.batch_size * count
    state = _State(
        index=ops.convert_to_tensor(0, dtype="int32"),
        tokens=ops.full((num_rows,), ids.start_id, dtype="int32"),
        sequences=ops.full((num_rows, inputs.max_length), ids.pad_id, dtype="int32"),
        sums=ops.zeros((num_rows,), dtype="float32"),
        score_bonus=ops.zeros((num_rows,), dtype="float32") if model.score_bonus else (),
        is_done=ops.repeat(inputs.is_empty, count, axis=0),
        bad_step=ops.convert_to_tensor(inputs.max_length, dtype="int32"),
        cache=model.cache,
    )

    def search_of(inputs: SearchInputs) -> _RowSearch:
        next_tokens = NextTokens.of(inputs, model.engine, count)
        return _RowSearch(strategy, inputs, model, next_tokens, choose_tokens_of(inputs))

    found = search_positions(search_of, state, model, inputs, count)
    return inputs.best(found, strategy.num_return)


@dataclasses.dataclass(frozen=True)
class Greedy(Strategy):
    """Takes the most probable token at each step, the smaller id of two equals.

    Args:
        length_penalty: What the score is divided by: a `LengthPenalty`, or what
            `length_penalties.get` makes one of, such as the exponent of GNMT's.
        coverage_penalty: The penalty of source tokens without attention: a `CoveragePenalty`, or
            its weight; `None` for none.
    """

    length_penalty: LengthPenaltyLike = 0.0
    coverage_penalty: CoverageLike = None

    def __post_init__(self) -> None:
        self.resolve_penalties()

    def search(self, model: StepModel, inputs: SearchInputs) -> SearchResult:
        """Decode until every row has ended; one hypothesis a sentence."""

        def most_probable(log_p: Tensor, index: Tensor) -> Tensor:
            return model.engine.argmax(log_p)

        return search_rows(self, lambda inputs: most_probable, model, inputs)
