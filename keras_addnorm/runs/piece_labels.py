"""Readable labels of a sentence's pieces, for the axes of attention maps."""

from __future__ import annotations

from collections.abc import Iterable

from keras_addnorm.data import BaseTokenizer


def readable_pieces(tokenizer: BaseTokenizer, ids: Iterable[int]) -> list[str]:
    """Names each token of a sentence.

    Args:
        tokenizer: The sentence's tokeniser.
        ids: Its tokens.

    Returns:
        The pieces, a space where a word begins, and words in brackets for the special tokens.
    """
    special = {
        tokenizer.start_id: "(start)",
        tokenizer.end_id: "(end)",
        tokenizer.unknown_id: "(unknown)",
    }
    return [special.get(token, tokenizer.pieces[token].text.replace("▁", " ")) for token in ids]
