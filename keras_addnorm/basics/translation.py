"""The result of translating a text; imports nothing heavy."""

from __future__ import annotations

from typing import NamedTuple


class Translation(NamedTuple):
    """One translation of a text.

    Attributes:
        text: The translation.
        score: Its sum of log-probabilities, divided by the length penalty; 0 for a blank text. Of a
            text of several segments, the sum over all of them, divided by the penalty of all their
            tokens.
    """

    text: str
    score: float
