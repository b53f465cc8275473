"""An entry of a vocabulary."""

from __future__ import annotations

from typing import NamedTuple

SPACE_MARK = "\u2581"


class Piece(NamedTuple):
    """One entry of a vocabulary.

    Attributes:
        text: The characters of the piece, with U+2581 in place of a space.
        score: Its log-probability (unigram) or minus its rank among the merges (BPE).
        type: `"normal"`, `"unknown"`, `"control"`, `"user_defined"`, `"unused"` or `"byte"`.
    """

    text: str
    score: float
    type: str
