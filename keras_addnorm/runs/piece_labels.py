"""Readable labels of a sentence's pieces, for the axes of attention maps."""

from __future__ import annotations

from collections.abc import Iterable

from keras_addnorm.basics.printing import printable
from keras_addnorm.data import BaseTokenizer


def readable_pieces(tokenizer: BaseTokenizer, ids: Iterable[int]) -> list[str]:
    """Names each token: its piece with a space where a word begins, or a special token's name."""
    special = {
        tokenizer.start_id: "(start)",
        tokenizer.end_id: "(end)",
        tokenizer.unknown_id: "(unknown)",
    }
    return [
        special.get(token, printable(tokenizer.pieces[token].text.replace("▁", " ")))
        for token in ids
    ]
