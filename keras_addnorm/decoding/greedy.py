"""Greedy search."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from keras_addnorm.decoding import coverage, length_penalties
from keras_addnorm.decoding.coverage import CoverageLike
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.rows import Choose, search_rows
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

        def most_probable(task: Task) -> Choose:
            return lambda log_p, index: task.columns.largest(log_p)

        return search_rows(self, most_probable, step, cache, task)
