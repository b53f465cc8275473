"""What a strategy is: an object that says how hypotheses are chosen and compared."""

from __future__ import annotations

import abc
from typing import Any

from keras_addnorm.decoding.length_penalties import LengthPenaltyLike
from keras_addnorm.decoding.steps import Cache, Found, Step, Task


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
    def num_return(self) -> int:
        """Number of hypotheses that are returned for each sentence, N."""

    @property
    @abc.abstractmethod
    def rows_per_sentence(self) -> int:
        """Number of rows that are decoded for each sentence."""

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


def check_num_return(num_return: int, num_beams: int) -> None:
    """Raise if more hypotheses are to be returned than there are."""
    require_positive("There is nothing to return.", num_return=num_return)
    if num_return > num_beams:
        raise ValueError(
            "More hypotheses are asked for than are kept. Expected num_return <= num_beams. "
            f"Received: num_return={num_return}, num_beams={num_beams}"
        )


def require_positive(what: str, **values: Any) -> None:
    """Raise unless every value is an int of at least 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{what} Expected an int {name} >= 1. Received: {value!r}")
