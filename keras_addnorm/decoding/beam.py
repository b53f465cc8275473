"""Beam search with a length penalty and frozen finished hypotheses."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import keras
from keras import ops

from keras_addnorm.decoding import coverage, length_penalties
from keras_addnorm.decoding.checks import check_num_return, require_positive
from keras_addnorm.decoding.compilation import select, take
from keras_addnorm.decoding.coverage import CoverageLike
from keras_addnorm.decoding.length_penalties import LengthPenalty, LengthPenaltyLike
from keras_addnorm.decoding.stages import Loop, Outcome, all_of_each, run_in_stages
from keras_addnorm.decoding.steps import (
    IMPOSSIBLE,
    Cache,
    Found,
    Step,
    best_first,
    first_bad_step,
    is_possible,
    write_column,
)
from keras_addnorm.decoding.strategy import Strategy
from keras_addnorm.decoding.task import Task

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Beam(Strategy):
    """Keeps the `num_beams` best unfinished hypotheses and the `num_beams` best finished ones.

    At each step the `2 num_beams` best continuations are looked at. Those that end and are among
    the first `num_beams` are finished: their score is final and they take no further part. The
    best of the others go on. At `max_length` the unfinished ones of a sentence that is not done
    are compared as they are. With one beam this is greedy search. Of two equal candidates the one
    with the better-ranked beam, then the smaller id, is kept; of two equal scores, that of the
    hypothesis that finished first.

    Args:
        num_beams: Number of hypotheses, K.
        length_penalty: What scores are divided by: a `LengthPenalty`, or what
            `length_penalties.get` makes one of, such as the exponent of GNMT's.
        num_return: Number of hypotheses to return for each sentence, best first, N.
        early_stopping: When a sentence is done. False: when no unfinished hypothesis can become
            one of the N best any more, so that the result is that of a search that never stops
            before `max_length`. True: also as soon as K hypotheses have finished, whatever the
            others might still reach.
        coverage_penalty: What is added to scores; see `Greedy`.

    Raises:
        ValueError: If a number is not positive, or more are returned than kept.

    Reference:
        Wu et al., "Google's Neural Machine Translation System", 2016, section 7.
    """

    num_beams: int = 4
    length_penalty: LengthPenaltyLike = 0.0
    num_return: int = 1
    early_stopping: bool = True
    coverage_penalty: CoverageLike = None

    def __post_init__(self) -> None:
        require_positive("A beam needs hypotheses.", num_beams=self.num_beams)
        check_num_return(self.num_return, self.num_beams)
        object.__setattr__(self, "length_penalty", length_penalties.get(self.length_penalty))
        object.__setattr__(self, "coverage_penalty", coverage.get(self.coverage_penalty))

    runs_in_stages: ClassVar[bool] = True

    @property
    def rows_per_sentence(self) -> int:
        """One row a hypothesis."""
        return self.num_beams

    @property
    def rows_per_beam(self) -> int:
        """All of a sentence."""
        return self.num_beams

    def finds_all_of(self, other: Strategy) -> bool:
        """The number to return does not change the search, if it stops early."""
        return super().finds_all_of(other) or (
            isinstance(other, Beam)
            and self.early_stopping
            and dataclasses.replace(other, num_return=self.num_return) == self
            and other.num_return <= self.num_return
        )

    def search(self, step: Step, cache: Cache, task: Task) -> Found:
        """Decode until every sentence is done.

        Args:
            step: The model.
            cache: Its state before the first step.
            task: What to decode.

        Returns:
            The best hypotheses.
        """
        layout = Layout(1, self.num_beams, self.num_return)
        return search_beams(self, layout, best_candidates, step, cache, task)


class BeamStrategy(Protocol):
    """The fields of a strategy that `search_beams` reads."""

    @property
    def length_penalty(self) -> LengthPenaltyLike:
        """See `Beam`."""

    @property
    def early_stopping(self) -> bool:
        """See `Beam`."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the rows of a sentence are divided: into groups that search side by side.

    Args:
        num_groups: Number of groups, G.
        num_beams: Number of hypotheses of each group, K.
        num_return: Number of hypotheses to return for each sentence, of all groups together.
    """

    num_groups: int
    num_beams: int
    num_return: int


class Candidates(NamedTuple):
    """The best continuations of each beam, best first: C of them.

    Args:
        sums: `(B G, C)`, sums of log-probabilities.
        origin: `(B G, C)`, the hypothesis that is continued, from 0 to K - 1.
        token: `(B G, C)`, the token that it is continued with.
    """

    sums: Tensor
    origin: Tensor
    token: Tensor


Choose = Callable[[Tensor, int], Candidates]
"""`choose(sums (B G, K, V), count) -> candidates`."""


class _State(NamedTuple):
    """What the loop carries. With G groups, "a beam" is one group of one sentence."""

    index: Tensor
    tokens: Tensor  # (B G, K), read at the next step
    alive: Tensor  # (B G, K, T), unfinished hypotheses, best first
    alive_sums: Tensor  # (B G, K), their log-probabilities
    finished: Tensor  # (B G, K, T), the best finished ones so far, best first
    finished_scores: Tensor  # (B G, K)
    num_finished: Tensor  # (B G,), all that ever finished
    is_done: Tensor  # (B G,)
    bad_step: Tensor
    cache: Cache  # B G K rows


def search_beams(
    strategy: BeamStrategy, layout: Layout, choose: Choose, step: Step, cache: Cache, task: Task
) -> Found:
    """Run beam search; `Beam` says how.

    Args:
        strategy: Says how hypotheses are scored and when the search is done.
        layout: How the rows are divided.
        choose: Chooses the candidates of a step.
        step: The model.
        cache: Its state before the first step.
        task: What to decode.

    Returns:
        The best hypotheses of each sentence.
    """
    loop_of = functools.partial(_loop, strategy, layout, choose, step)
    state, number = _start(layout, cache, task), layout.num_groups * layout.num_beams
    return task.result(layout.num_return, *run_in_stages(loop_of, state, task, number))


def _loop(
    strategy: BeamStrategy, layout: Layout, choose: Choose, step: Step, task: Task
) -> Loop[_State]:
    num_beams, ids = layout.num_beams, task.ids
    length_penalty = length_penalties.get(strategy.length_penalty)
    read = task.reader(layout.num_groups * num_beams)

    def is_running(state: _State) -> Tensor:
        return ops.logical_not(all_of_each(state.is_done, layout.num_groups))

    def advance(state: _State) -> _State:
        logits, cache = step(ops.reshape(state.tokens, (-1,)), state.index, state.cache)
        sequences = ops.reshape(state.alive, (-1, task.max_length))
        log_p, is_bad = read(logits, sequences, state.index)
        vocabulary_size = logits.shape[-1]
        sums = ops.expand_dims(ops.reshape(state.alive_sums, (-1,)), -1) + log_p
        sums = ops.reshape(sums, (-1, num_beams, vocabulary_size))
        num_candidates = min(2 * num_beams, num_beams * vocabulary_size)
        candidates = choose(sums, num_candidates)
        sequences = write_column(
            select(state.alive, candidates.origin), state.index, candidates.token
        )
        is_end = ops.equal(candidates.token, ids.end_id)

        # Finished: an end among the first K, of a sentence that is not done.
        rank = ops.arange(num_candidates, dtype="int32")
        ends_now = ops.logical_and(is_end, is_possible(candidates.sums))
        ends_now = ops.logical_and(ends_now, rank < num_beams)
        ends_now = ops.logical_and(ends_now, ops.expand_dims(ops.logical_not(state.is_done), -1))
        scores = candidates.sums / length_penalty.divisor(state.index + 1)
        if task.bonus:
            bonus = ops.reshape(task.bonus(cache), (-1, num_beams))
            scores = scores + select(bonus, candidates.origin)
        finished_scores, order = best_first(
            ops.concatenate(
                [state.finished_scores, ops.where(ends_now, scores, IMPOSSIBLE)], axis=1
            ),
            num_beams,
        )
        finished = select(ops.concatenate([state.finished, sequences], axis=1), order)
        num_finished = state.num_finished + ops.sum(ops.cast(ends_now, "int32"), axis=1)

        # Alive: the first K that do not end.
        alive_sums = ops.where(is_end, IMPOSSIBLE, candidates.sums)
        _, order = best_first(ops.where(is_end, -num_candidates, 0) - rank, num_beams)
        alive_sums = select(alive_sums, order)
        origin = select(candidates.origin, order)

        best_sum = ops.max(alive_sums, axis=1)
        shortest = ops.minimum(state.index + 2, task.max_length)
        reachable = _best_reachable(best_sum, shortest, task.max_length, length_penalty)
        is_done = finished_scores[:, min(layout.num_return, num_beams) - 1] >= reachable
        if strategy.early_stopping:
            is_done = ops.logical_or(is_done, num_finished >= num_beams)
        is_done = ops.logical_or(is_done, ops.logical_not(is_possible(best_sum)))

        counts = ops.logical_and(
            is_possible(state.alive_sums), ops.expand_dims(ops.logical_not(state.is_done), -1)
        )
        is_bad = ops.logical_and(is_bad, ops.reshape(counts, (-1,)))
        return _State(
            index=state.index + 1,
            tokens=select(candidates.token, order),
            alive=select(sequences, order),
            alive_sums=alive_sums,
            finished=finished,
            finished_scores=finished_scores,
            num_finished=num_finished,
            is_done=ops.logical_or(state.is_done, is_done),
            bad_step=first_bad_step(state.bad_step, is_bad, state.index),
            cache=_reorder(cache, origin, num_beams),
        )

    def outcome(state: _State) -> Outcome:
        return _best_of_all(layout, length_penalty, state, task)

    return Loop(is_running, advance, outcome)


def best_candidates(sums: Tensor, count: int) -> Candidates:
    """Return the `count` best of all continuations.

    Args:
        sums: `(B, K, V)`.
        count: Number of candidates.

    Returns:
        The candidates, best first.
    """
    vocabulary_size = sums.shape[-1]
    sums = ops.reshape(sums, (-1, sums.shape[1] * vocabulary_size))
    sums, flat = best_first(sums, count, line=vocabulary_size)
    return Candidates(sums, flat // vocabulary_size, flat % vocabulary_size)


def _start(layout: Layout, cache: Cache, task: Task) -> _State:
    """Return the state before the first step."""
    num_beams = layout.num_beams
    beams = task.batch_size * layout.num_groups
    nothing = ops.full((beams, num_beams, task.max_length), task.ids.pad_id, dtype="int32")
    none_yet = ops.full((beams, num_beams), IMPOSSIBLE, dtype="float32")
    # All hypotheses start equal, so only the first may be continued at first.
    is_first = ops.equal(ops.arange(num_beams), 0)
    return _State(
        index=ops.convert_to_tensor(0, dtype="int32"),
        tokens=ops.full((beams, num_beams), task.ids.start_id, dtype="int32"),
        alive=nothing,
        alive_sums=ops.where(is_first, 0.0, none_yet),
        finished=nothing,
        finished_scores=none_yet,
        num_finished=ops.zeros((beams,), dtype="int32"),
        is_done=ops.repeat(task.is_empty, layout.num_groups, axis=0),
        bad_step=ops.convert_to_tensor(task.max_length, dtype="int32"),
        cache=cache,
    )


def _best_reachable(
    best_sum: Tensor, shortest: Tensor, longest: int, length_penalty: LengthPenalty
) -> Tensor:
    """Return the score that a hypothesis would have if all its further tokens were certain."""
    # Sums are not positive and divisors rise or fall with the length: one of the ends is best.
    divisor = ops.maximum(length_penalty.divisor(shortest), length_penalty.divisor(longest))
    return best_sum / divisor


def _reorder(cache: Cache, origin: Tensor, num_beams: int) -> Cache:
    """Return the cache of the hypotheses that go on; `origin` `(B G, K)` says whose it is."""
    first = num_beams * ops.arange(ops.shape(origin)[0], dtype="int32")
    rows = ops.reshape(origin + ops.expand_dims(first, -1), (-1,))
    reordered = keras.tree.map_structure(lambda tensor: take(tensor, rows), cache.rows)
    return cache._replace(rows=reordered)


def _best_of_all(
    layout: Layout, length_penalty: LengthPenalty, state: _State, task: Task
) -> Outcome:
    """Return the best hypotheses of each sentence: each group's K best, compared."""
    # A beam that is not done has reached max_length: its unfinished hypotheses count, too.
    counts = ops.logical_and(
        is_possible(state.alive_sums), ops.expand_dims(ops.logical_not(state.is_done), -1)
    )
    scores = state.alive_sums / length_penalty.divisor(state.index)
    if task.bonus:
        scores = scores + ops.reshape(task.bonus(state.cache), (-1, layout.num_beams))
    scores = ops.concatenate([state.finished_scores, ops.where(counts, scores, IMPOSSIBLE)], axis=1)
    # A group that stopped early has K to offer: the others have no more, or the end would depend
    # on when the search stopped.
    scores, order = best_first(scores, layout.num_beams)
    sequences = select(ops.concatenate([state.finished, state.alive], axis=1), order)
    number = layout.num_groups * layout.num_beams
    return Outcome(
        ops.reshape(sequences, (-1, number, task.max_length)),
        ops.reshape(scores, (-1, number)),
        state.bad_step,
    )
