"""Texts as clients send them to an exported model."""

from __future__ import annotations

import re

from keras_addnorm.data import Tokenizer


def normalize_words(text: str) -> str:
    """Normalises a text word by word and keeps its white space, at which the model splits it.

    Args:
        text: Any text.

    Returns:
        The text that a model was trained on, but for the white space.

    Raises:
        TypeError: If `text` is not a string.
    """
    if not isinstance(text, str):
        return Tokenizer.normalize(text)
    return "".join(
        Tokenizer.normalize(part) if index % 2 == 0 else part
        for index, part in enumerate(re.split(r"(\s+)", text))
    )
