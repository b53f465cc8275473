"""The result type of `Client` and `Translator`; imports nothing heavy."""

from __future__ import annotations

from typing import NamedTuple


class Translation(NamedTuple):
    """One translated text.

    Attributes:
        text: The translation.
        score: Its log-probability, divided by the length penalty; 0 for a blank text.
    """

    text: str
    score: float
