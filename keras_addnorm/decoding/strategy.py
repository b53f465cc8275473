"""What a strategy is: an object that says how hypotheses are chosen and compared."""

from __future__ import annotations

import abc
from typing import ClassVar

from keras_addnorm.decoding.coverage import CoverageLike
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.steps import Cache, Found, Step
from keras_addnorm.decoding.task import Task


class Strategy(abc.ABC):
    """Searches for outputs, one token a step. A subclass is a frozen dataclass.

    Strategies are plain values: they are compared and hashed, and a compiled decoder is kept for
    each. All tensors come through the arguments of `search`.

    Attributes:
        runs_in_stages: Whether `search` loops by `stages.run_in_stages`. Its cache has room for the
            positions of the first stage then, else for all of them.
    """

    runs_in_stages: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def length_penalty(self) -> LengthPenaltyLike:
        """What sums of log-probabilities are divided by."""

    @property
    @abc.abstractmethod
    def coverage_penalty(self) -> CoverageLike:
        """What is added to scores for what was left unread."""

    @property
    @abc.abstractmethod
    def num_return(self) -> int:
        """Number of hypotheses that are returned for each sentence, N."""

    @property
    @abc.abstractmethod
    def rows_per_sentence(self) -> int:
        """Number of rows that are decoded for each sentence."""

    @property
    @abc.abstractmethod
    def rows_per_beam(self) -> int:
        """Number of rows, side by side, that may go on from one another."""

    def finds_all_of(self, other: Strategy) -> bool:
        """Return whether the first hypotheses of this are all that another strategy returns."""
        return self == other

    @abc.abstractmethod
    def search(self, step: Step, cache: Cache, task: Task) -> Found:
        """Decode until every sentence is done.

        Args:
            step: The model. With K rows a sentence, rows `b K` to `b K + K - 1` belong to
                sentence `b`.
            cache: Its state before the first step, with `B K` rows.
            task: What to decode.

        Returns:
            What was found.
        """
