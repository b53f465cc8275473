"""Greedy search."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_addnorm.decoding import coverage, length_penalties
from keras_addnorm.decoding.coverage import CoverageLike
from keras_addnorm.decoding.independent_rows import search_rows
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.search_inputs import SearchInputs, SearchResult
from keras_addnorm.decoding.step_model import StepModel
from keras_addnorm.decoding.strategy import Strategy

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

    @property
    def rows_per_sentence(self) -> int:
        """One row a sentence."""
        return 1

    @property
    def rows_per_beam(self) -> int:
        """Each goes its own way."""
        return 1

    def search(self, model: StepModel, inputs: SearchInputs) -> SearchResult:
        """Decode until every row has ended; one hypothesis a sentence."""

        def most_probable(log_p: Tensor, index: Tensor) -> Tensor:
            return model.engine.argmax(log_p)

        return search_rows(self, lambda inputs: most_probable, model, inputs)
