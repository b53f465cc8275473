"""Beam search with a length penalty and frozen finished hypotheses, and diverse beam search."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Literal, NamedTuple

from keras import ops

from keras_addnorm.basics.argument_checks import is_number, require_int
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding import length_penalties
from keras_addnorm.decoding.length_penalties import CoverageLike, LengthPenalty, LengthPenaltyLike
from keras_addnorm.decoding.search_inputs import Cache, Hypotheses, SearchInputs, SearchResult
from keras_addnorm.decoding.strategy import (
    MOST_BEAMS,
    NextTokens,
    StepModel,
    Strategy,
    all_done,
    search_positions,
)
from keras_addnorm.decoding.tensor_ops import (
    IMPOSSIBLE,
    best_first,
    first_bad_step,
    is_possible,
    select,
    write_column,
)

Tensor = Any

EarlyStopping = bool | Literal["current_length"]
"""What `rule_of` knows."""


class Progress(NamedTuple):
    """What beams of K hypotheses have found after a step, B of them.

    Args:
        best_sum: `(B,)`, the best sum of log-probabilities of an unfinished hypothesis.
        length: Number of its tokens, a scalar.
        max_length: Number of tokens at most.
        finished_scores: `(B, K)`, the best finished hypotheses, best first.
        num_finished: `(B,)`, all that ever finished.
        num_return: Number of hypotheses that are returned, N; an int, or an int32 scalar.
    """

    best_sum: Tensor
    length: Tensor
    max_length: int
    finished_scores: Tensor
    num_finished: Tensor
    num_return: int | Tensor


class StoppingRule(abc.ABC):
    """When a search looks for nothing more."""

    @abc.abstractmethod
    def is_done(self, progress: Progress, length_penalty: LengthPenalty) -> Tensor:
        """Say which beams are done."""


@dataclasses.dataclass(frozen=True)
class NothingBetterReachable(StoppingRule):
    """No unfinished hypothesis can become one of the N best. Stopping then loses nothing."""

    def is_done(self, progress: Progress, length_penalty: LengthPenalty) -> Tensor:
        """Compare with a hypothesis all of whose further tokens are certain."""
        # Sums are never positive, so the largest divisor that is still to come gives the best
        # score. It is looked for among all lengths: a divisor of one's own may rise and fall.
        longest = progress.max_length
        all_lengths = ops.arange(1, longest + 1, dtype="int32")
        is_reachable = all_lengths >= ops.minimum(progress.length + 1, ops.cast(longest, "int32"))
        divisors = ops.where(is_reachable, length_penalty.divisor(all_lengths), 0.0)
        reachable = progress.best_sum / ops.max(divisors)
        num_beams = progress.finished_scores.shape[1]
        num_return, num_beams = (
            ops.cast(number, "int32") for number in (progress.num_return, num_beams)
        )
        needed = ops.minimum(num_return, num_beams) - 1
        return ops.take(progress.finished_scores, needed, axis=1) >= reachable


@dataclasses.dataclass(frozen=True)
class EnoughFinished(StoppingRule):
    """K hypotheses have finished, whatever the others might still reach."""

    def is_done(self, progress: Progress, length_penalty: LengthPenalty) -> Tensor:
        """Count those that ever finished."""
        return progress.num_finished >= progress.finished_scores.shape[1]


@dataclasses.dataclass(frozen=True)
class NoneBetterAtThisLength(StoppingRule):
    """K have finished, and the best of the others would be worse if it ended as it is."""

    def is_done(self, progress: Progress, length_penalty: LengthPenalty) -> Tensor:
        """Compare with the worst finished one; where fewer have finished, that is impossible."""
        score = progress.best_sum / length_penalty.divisor(progress.length)
        return progress.finished_scores[:, -1] >= score


_RULES: dict[EarlyStopping, StoppingRule] = {
    True: EnoughFinished(),
    False: NothingBetterReachable(),
    "current_length": NoneBetterAtThisLength(),
}


def rule_of(early_stopping: EarlyStopping) -> StoppingRule:
    """Return the rule that a strategy names by its `early_stopping`; see `Beam`."""
    try:
        return _RULES[early_stopping]
    except (KeyError, TypeError):
        raise ArgumentError(
            "`early_stopping` says when a beam search is done with a sentence.",
            ", ".join(map(repr, _RULES)),
            early_stopping=early_stopping,
        ) from None


def are_done(
    early_stopping: EarlyStopping, progress: Progress, length_penalty: LengthPenalty
) -> Tensor:
    """Return which beams are done, `(B,)`: by the rule, or because nothing better can come."""
    rules = dict.fromkeys([rule_of(False), rule_of(early_stopping)])
    done, *others = (rule.is_done(progress, length_penalty) for rule in rules)
    for other in others:
        done = ops.logical_or(done, other)
    return done


@dataclasses.dataclass(frozen=True)
class Beam(Strategy):
    """Keeps the `num_beams` best unfinished hypotheses and the `num_beams` best finished ones.

    At each step the `2 num_beams` best continuations are looked at. Those that end and are among
    the first `num_beams` are finished: their score is final and they take no further part. The
    best of the others go on. A sentence is done when none of them can become one of the best any
    more, so that the result is the best that a beam of this width sees. At `max_length` the
    unfinished ones of a sentence that is not done are compared as they are. With one beam and no
    length penalty this is greedy search. Of two equal candidates the one with the better-ranked
    beam, then the smaller id, is kept; of two equal scores, that of the hypothesis that finished
    first.

    Args:
        num_beams: Number of hypotheses, K.
        length_penalty: What scores are divided by: a `LengthPenalty`, or what
            `length_penalties.get` makes one of, such as the exponent of GNMT's.
        num_return: Number of hypotheses to return for each sentence, best first, N.
        early_stopping: When a sentence is done. False: when no unfinished hypothesis can become
            one of the N best any more, so that the result is that of a search that never stops
            before `max_length`. True: also as soon as K hypotheses have finished, whatever the
            others might still reach, which may be better than all of these. "current_length": also
            as soon as K have finished and the best of the others, divided by the divisor of its
            present length, is not better than the worst of them: the default of Hugging Face's
            `generate`, which calls it False.
        coverage_penalty: What is added to scores; see `Greedy`.

    Raises:
        ValueError: If a number is not positive, or more are returned than kept.

    Reference:
        Wu et al., "Google's Neural Machine Translation System", 2016, section 7.
    """

    num_beams: int = 4
    length_penalty: LengthPenaltyLike = 0.0
    num_return: int = 1
    early_stopping: EarlyStopping = False
    coverage_penalty: CoverageLike = None

    def __post_init__(self) -> None:
        require_int("A beam needs hypotheses.", most=MOST_BEAMS, num_beams=self.num_beams)
        require_int("There is nothing to return.", num_return=self.num_return)
        if self.num_return > self.num_beams:
            raise ArgumentError(
                "More hypotheses are asked for than are kept.",
                "`num_return` <= `num_beams`",
                num_return=self.num_return,
                num_beams=self.num_beams,
            )
        rule_of(self.early_stopping)
        self.resolve_penalties()

    @property
    def rows_per_sentence(self) -> int:
        """One row a hypothesis."""
        return self.num_beams

    @property
    def rows_per_beam(self) -> int:
        """All of a sentence."""
        return self.num_beams

    def search(self, model: StepModel, inputs: SearchInputs) -> SearchResult:
        """Decode until every sentence is done."""

        def search_of(inputs: SearchInputs) -> _BeamSearch:
            next_tokens = NextTokens.of(inputs, model.engine, self.num_beams)
            penalty = length_penalties.get(self.length_penalty)
            return _BeamSearch(self, inputs, model, penalty, next_tokens)

        state = _start(self, inputs, model.cache)
        found = search_positions(search_of, state, model, inputs, self.num_beams)
        return inputs.best(found, self.num_return)

    def candidates(self, sums: Tensor, count: int) -> Candidates:
        """Choose the candidates of a step.

        Args:
            sums: `(B G, K, V)`, the sums of log-probabilities of all continuations.
            count: How many are chosen of each beam, C.

        Returns:
            The `count` best, best first.
        """
        vocabulary_size = sums.shape[-1]
        # (B, K, V) -> (B, K V)
        sums = ops.reshape(sums, (-1, sums.shape[1] * vocabulary_size))
        sums, flat = best_first(sums, count, line=vocabulary_size)
        return Candidates(sums, flat // vocabulary_size, flat % vocabulary_size)


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


class _Extended(NamedTuple):
    """The best continuations of each beam, best first: C of them."""

    candidates: Candidates
    sequences: Tensor  # (B G, C, T)
    is_end: Tensor  # (B G, C)
    rank: Tensor  # (C,), from 0
    is_bad: Tensor  # (N,), True where a logit is no number


class _Finished(NamedTuple):
    """The best finished hypotheses so far, best first, and the number of all that ever finished."""

    sequences: Tensor  # (B G, K, T)
    scores: Tensor  # (B G, K)
    number: Tensor  # (B G,)


@dataclasses.dataclass(frozen=True)
class _BeamSearch:
    """The algorithm, for the beams of some sentences."""

    strategy: Beam
    inputs: SearchInputs
    model: StepModel
    length_penalty: LengthPenalty
    next_tokens: NextTokens

    @property
    def num_beams(self) -> int:
        """Number of hypotheses of a group, K."""
        return self.strategy.rows_per_beam

    @property
    def num_groups(self) -> int:
        """Number of groups of a sentence that search side by side, G."""
        return self.strategy.num_beams // self.num_beams

    def newest_tokens(self, state: _State) -> Tensor:
        return ops.reshape(state.tokens, (-1,))  # (B G, K) -> (N,)

    def choose(self, state: _State, logits: Tensor, cache: Cache) -> tuple[_State, Tensor]:
        """Continue the best hypotheses, and keep the best that end."""
        extended = self._extend(state, logits)
        finished = self._finish(state, extended, cache)
        return self._keep(state, extended, finished, cache)

    def _extend(self, state: _State, logits: Tensor) -> _Extended:
        """Choose the best continuations: `(N, V)` -> `(B G, C)`."""
        num_beams, vocabulary_size = self.num_beams, logits.shape[-1]
        # (N, V) -> (B G, K, V): the sums of all continuations
        sequences = ops.reshape(state.alive, (-1, self.inputs.max_length))
        log_p, is_bad = self.next_tokens.read(logits, sequences, state.index)
        sums = ops.expand_dims(ops.reshape(state.alive_sums, (-1,)), -1) + log_p
        sums = ops.reshape(sums, (-1, num_beams, vocabulary_size))
        # (B G, K, V) -> (B G, C): the best of them, and (B G, C, T), the hypotheses they make
        num_candidates = min(2 * num_beams, num_beams * vocabulary_size)
        candidates = self.strategy.candidates(sums, num_candidates)
        sequences = select(state.alive, candidates.origin)
        sequences = write_column(sequences, state.index, candidates.token)
        is_end = ops.equal(candidates.token, self.inputs.ids.end_id)
        rank = ops.arange(num_candidates, dtype="int32")
        return _Extended(candidates, sequences, is_end, rank, is_bad)

    def _finish(self, state: _State, extended: _Extended, cache: Cache) -> _Finished:
        """Keep the best that end among the first K, of sentences that are not done."""
        candidates = extended.candidates
        ends_now = ops.logical_and(extended.is_end, is_possible(candidates.sums))
        ends_now = ops.logical_and(ends_now, extended.rank < self.num_beams)
        ends_now = ops.logical_and(ends_now, ops.expand_dims(ops.logical_not(state.is_done), -1))
        scores = candidates.sums / self.length_penalty.divisor(state.index + 1)
        if self.model.score_bonus:
            scores = scores + select(self._score_bonus(cache), candidates.origin)
        # (B G, K + C) -> (B G, K)
        scores, order = best_first(
            ops.concatenate(
                [state.finished_scores, ops.where(ends_now, scores, IMPOSSIBLE)], axis=1
            ),
            self.num_beams,
        )
        sequences = select(ops.concatenate([state.finished, extended.sequences], axis=1), order)
        number = state.num_finished + ops.sum(ops.cast(ends_now, "int32"), axis=1)
        return _Finished(sequences, scores, number)

    def _keep(
        self, state: _State, extended: _Extended, finished: _Finished, cache: Cache
    ) -> tuple[_State, Tensor]:
        """Go on with the first K that do not end, and say which sentences are done."""
        candidates, sequences, is_end, rank, is_bad = extended
        # (B G, C) -> (B G, K)
        alive_sums = ops.where(is_end, IMPOSSIBLE, candidates.sums)
        _, order = best_first(ops.where(is_end, -rank.shape[0] - rank, -rank), self.num_beams)
        alive_sums = select(alive_sums, order)
        origin = select(candidates.origin, order)

        best_sum = ops.max(alive_sums, axis=1)
        needed = self.inputs.num_needed
        progress = Progress(
            best_sum,
            state.index + 1,
            self.inputs.max_length,
            finished.scores,
            finished.number,
            self.strategy.num_return if needed is None else needed,
        )
        is_done = ops.logical_or(
            are_done(self.strategy.early_stopping, progress, self.length_penalty),
            ops.logical_not(is_possible(best_sum)),
        )
        is_bad = ops.logical_and(is_bad, ops.reshape(_counts(state), (-1,)))
        new = _State(
            index=state.index + 1,
            tokens=select(candidates.token, order),
            alive=select(sequences, order),
            alive_sums=alive_sums,
            finished=finished.sequences,
            finished_scores=finished.scores,
            num_finished=finished.number,
            is_done=ops.logical_or(state.is_done, is_done),
            bad_step=first_bad_step(state.bad_step, is_bad, state.index),
            cache=cache,
        )
        # The rows that hypotheses go on from, (N,), for their places in their beams.
        first = self.num_beams * ops.arange(ops.shape(origin)[0], dtype="int32")
        return new, ops.reshape(origin + ops.expand_dims(first, -1), (-1,))

    def is_running(self, state: _State) -> Tensor:
        return ops.logical_not(all_done(state.is_done, self.num_groups))

    def hypotheses(self, state: _State) -> Hypotheses:
        """Return the best hypotheses of each sentence: each group's K best, compared."""
        # A beam that is not done has reached max_length: its unfinished hypotheses count, too.
        counts = _counts(state)
        scores = state.alive_sums / self.length_penalty.divisor(state.index)
        if self.model.score_bonus:
            scores = scores + self._score_bonus(state.cache)
        scores = ops.where(counts, scores, IMPOSSIBLE)
        scores = ops.concatenate([state.finished_scores, scores], axis=1)
        # A group that stopped early has K to offer: the others have no more, or the end would
        # depend on when the search stopped.
        scores, order = best_first(scores, self.num_beams)
        sequences = select(ops.concatenate([state.finished, state.alive], axis=1), order)
        # (B G, K, T) -> (B, G K, T)
        number = self.strategy.num_beams
        return Hypotheses(
            ops.reshape(sequences, (-1, number, self.inputs.max_length)),
            ops.reshape(scores, (-1, number)),
            state.bad_step,
        )

    def _score_bonus(self, cache: Cache) -> Tensor:
        assert self.model.score_bonus is not None
        return ops.reshape(self.model.score_bonus(cache), (-1, self.num_beams))


def _counts(state: _State) -> Tensor:
    """Return which unfinished hypotheses can still be found, `(B G, K)`."""
    return ops.logical_and(
        is_possible(state.alive_sums), ops.expand_dims(ops.logical_not(state.is_done), -1)
    )


def _start(strategy: Beam, inputs: SearchInputs, cache: Cache) -> _State:
    """Return the state before the first step."""
    num_beams = strategy.rows_per_beam
    num_groups = strategy.num_beams // num_beams
    beams = inputs.batch_size * num_groups
    nothing = ops.full((beams, num_beams, inputs.max_length), inputs.ids.pad_id, dtype="int32")
    none_yet = ops.full((beams, num_beams), IMPOSSIBLE, dtype="float32")
    # All hypotheses start equal, so only the first may be continued at first.
    is_first = ops.equal(ops.arange(num_beams, dtype="int32"), 0)
    return _State(
        index=ops.convert_to_tensor(0, dtype="int32"),
        tokens=ops.full((beams, num_beams), inputs.ids.start_id, dtype="int32"),
        alive=nothing,
        alive_sums=ops.where(is_first, 0.0, none_yet),
        finished=nothing,
        finished_scores=none_yet,
        num_finished=ops.zeros((beams,), dtype="int32"),
        is_done=ops.repeat(inputs.is_empty, num_groups, axis=0),
        bad_step=ops.convert_to_tensor(inputs.max_length, dtype="int32"),
        cache=cache,
    )


# Beside a larger cost, times the hypotheses, float32 could not tell sums apart.
_DEAREST = 10_000


@dataclasses.dataclass(frozen=True)
class _Groups:
    """The fields that a `DiverseBeam` has before those of a `Beam`."""

    num_beams: int = 4
    num_groups: int = 2
    diversity: float = 0.5


@dataclasses.dataclass(frozen=True)
class DiverseBeam(Beam, _Groups):
    """Divides a beam into groups, each of which avoids what the groups before it do.

    The groups are beams of `num_beams / num_groups` hypotheses. At each step they choose one after
    the other. A token costs a group `diversity` for each time that it is among the best
    continuations (as many as the group has hypotheses) of the groups before it, at this step (the
    paper's Hamming diversity). The cost counts in the step's choice only: sums and scores stay
    the model's own. Each group offers its best hypotheses, as many as it keeps; the best of these
    are returned, and two groups may have found the same one. With one group this is `Beam`.

    Args:
        num_beams: Number of hypotheses of all groups, a multiple of `num_groups`.
        num_groups: Number of groups, G.
        diversity: The cost, in units of log-probability; the paper's λ.
        length_penalty: What scores are divided by; see `Greedy`.
        num_return: Number of hypotheses to return for each sentence, best first.
        early_stopping: When a group is done; see `Beam`. Until the last group of a sentence is,
            the others go on unseen, for it to differ from.
        coverage_penalty: What is added to scores; see `Greedy`.

    Raises:
        ValueError: If a number does not fit.

    Reference:
        Vijayakumar et al., "Diverse Beam Search", 2016, algorithm 1.
    """

    def __post_init__(self) -> None:
        require_int("Groups need hypotheses.", num_beams=self.num_beams, num_groups=self.num_groups)
        if self.num_beams % self.num_groups:
            raise ArgumentError(
                "The hypotheses cannot be shared out evenly.",
                "`num_beams` to be a multiple of `num_groups`",
                num_beams=self.num_beams,
                num_groups=self.num_groups,
            )
        if not is_number(self.diversity, least=0, most=_DEAREST):
            raise ArgumentError(
                "Being like the others can cost something or nothing.",
                f"0 <= `diversity` <= {_DEAREST}",
                diversity=self.diversity,
            )
        super().__post_init__()

    @property
    def rows_per_beam(self) -> int:
        """Those of a group."""
        return self.num_beams // self.num_groups

    def candidates(self, sums: Tensor, count: int) -> Candidates:
        """Return the candidates of each group, chosen one group after the other."""
        num_beams, vocabulary_size = sums.shape[1:]
        # (B G, K, V) -> (B, G, K V)
        sums = ops.reshape(sums, (-1, self.num_groups, num_beams * vocabulary_size))
        cost = ops.zeros((ops.shape(sums)[0], vocabulary_size), dtype="float32")
        chosen = []
        for group in range(self.num_groups):
            own = sums[:, group]
            weighed = own - ops.tile(cost, (1, num_beams))
            _, flat = best_first(weighed, count, line=vocabulary_size)
            candidates = Candidates(
                select(own, flat),
                flat // vocabulary_size,
                flat % vocabulary_size,
            )
            is_used = ops.expand_dims(is_possible(candidates.sums[:, :num_beams]), -1)
            used = ops.one_hot(candidates.token[:, :num_beams], vocabulary_size, dtype="float32")
            cost = cost + self.diversity * ops.sum(ops.where(is_used, used, 0.0), axis=1)
            chosen.append(candidates)
        # G times (B, C) -> (B G, C)
        fields = (ops.stack(groups, axis=1) for groups in zip(*chosen, strict=True))
        return Candidates(*(ops.reshape(field, (-1, count)) for field in fields))
