"""When a beam search is done with a sentence: the choices of `early_stopping`."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Literal, NamedTuple

from keras import ops

from keras_addnorm.decoding.length_penalties import LengthPenalty

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
        """Say which beams are done.

        Args:
            progress: What they have found.
            length_penalty: What sums are divided by.

        Returns:
            Booleans, `(B,)`.
        """


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
    """Return the rule that a strategy names.

    Args:
        early_stopping: See `Beam`.

    Returns:
        The rule.

    Raises:
        ValueError: If there is no such rule.
    """
    try:
        return _RULES[early_stopping]
    except (KeyError, TypeError):
        raise ValueError(
            "`early_stopping` says when a beam search is done with a sentence. Expected "
            f"{', '.join(map(repr, _RULES))}. Received: {early_stopping!r}"
        ) from None


def are_done(
    early_stopping: EarlyStopping, progress: Progress, length_penalty: LengthPenalty
) -> Tensor:
    """Return which beams are done, `(B,)`: by the rule, or because nothing better can come.

    Args:
        early_stopping: See `Beam`.
        progress: What they have found.
        length_penalty: What sums are divided by.

    Returns:
        Booleans.
    """
    rules = dict.fromkeys([rule_of(False), rule_of(early_stopping)])
    done, *others = (rule.is_done(progress, length_penalty) for rule in rules)
    for other in others:
        done = ops.logical_or(done, other)
    return done
