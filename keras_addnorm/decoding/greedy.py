"""Greedy search."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from keras import ops

from keras_addnorm.decoding import coverage, length_penalties
from keras_addnorm.decoding.coverage import CoverageLike
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.rows import search_rows
from keras_addnorm.decoding.steps import Cache, Found, Step
from keras_addnorm.decoding.strategy import Strategy
from keras_addnorm.decoding.task import Task

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Greedy(Strategy):
    """Takes the most probable token at each step, the smaller id of two equals.

    Args:
        length_penalty: What the score is divided by: a `LengthPenalty`, or what
            `length_penalties.get` makes one of, such as the exponent of GNMT's.
        coverage_penalty: What is added to the score for what was left unread: a
            `CoveragePenalty`, or its weight; `None` for nothing.
    """

    length_penalty: LengthPenaltyLike = 0.0
    coverage_penalty: CoverageLike = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "length_penalty", length_penalties.get(self.length_penalty))
        object.__setattr__(self, "coverage_penalty", coverage.get(self.coverage_penalty))

    @property
    def num_return(self) -> int:
        """One hypothesis a sentence."""
        return 1

    runs_in_stages: ClassVar[bool] = True

    @property
    def rows_per_sentence(self) -> int:
        """One row a sentence."""
        return 1

    @property
    def rows_per_beam(self) -> int:
        """Each goes its own way."""
        return 1

    def search(self, step: Step, cache: Cache, task: Task) -> Found:
        """Decode until every row has ended.

        Args:
            step: The model.
            cache: Its state before the first step.
            task: What to decode.

        Returns:
            One hypothesis a sentence.
        """
        return search_rows(self, lambda task: _most_probable, step, cache, task)


def _most_probable(log_p: Tensor, index: Tensor) -> Tensor:
    # Two plain reductions. XLA makes one scalar loop of an argmax, which takes four times as long.
    best = ops.max(log_p, axis=-1, keepdims=True)
    tokens = ops.arange(log_p.shape[-1], dtype="int32")
    return ops.min(ops.where(ops.equal(log_p, best), tokens, log_p.shape[-1] - 1), axis=-1)
