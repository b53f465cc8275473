"""Entries of a vocabulary and its special ids."""

from __future__ import annotations

from typing import NamedTuple

KINDS = ("unigram", "bpe")
PAD_ID, START_ID, END_ID, UNKNOWN_ID = 0, 1, 2, 3

# What SentencePiece puts in place of a space.
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
