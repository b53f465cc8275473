"""What a strategy is: an object that says how hypotheses are chosen and compared."""

from __future__ import annotations

import abc

from keras_addnorm.decoding.coverage import CoverageLike
from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.search_inputs import SearchInputs, SearchResult
from keras_addnorm.decoding.step_model import StepModel


class Strategy(abc.ABC):
    """Searches for outputs, one token a step. A subclass is a frozen dataclass.

    Strategies are plain values: they are compared and hashed, and a compiled decoder is kept for
    each. All tensors come through the arguments of `search`.
    """

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

    @abc.abstractmethod
    def search(self, model: StepModel, inputs: SearchInputs) -> SearchResult:
        """Decode until every sentence is done.

        Args:
            model: The decoder, and its cache of `B K` rows before the first step.
            inputs: What to decode.

        Returns:
            The best hypotheses.
        """
