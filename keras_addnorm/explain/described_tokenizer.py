"""A SentencePiece vocabulary in plain values, with which the page splits what is typed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_addnorm.data import BaseTokenizer, Tokenizer
from keras_addnorm.data.characters import IDLE_JOINERS, is_ignorable
from keras_addnorm.data.normalization import is_written
from keras_addnorm.data.sentencepiece_model import is_symbol

# Beyond them nothing is ignorable: ideographs, and planes without characters.
_LOOKED_AT = (range(0x20000), range(0xE0000, 0xE1000))


def describe_tokenizer(tokenizer: BaseTokenizer) -> dict[str, Any]:
    """Describe a tokenizer for the page.

    Args:
        tokenizer: A tokenizer.

    Returns:
        Plain values.

    Raises:
        ValueError: If the page does not split texts as this tokenizer does, by name.

    Example:
        >>> tokenizer = Tokenizer.train(["a small house", "a mouse"], vocabulary_size=14)
        >>> describe_tokenizer(tokenizer)["pieces"][2]
        ['</s>', 0.0, 'control']
    """
    if not isinstance(tokenizer, Tokenizer):
        raise _refused(f"of the kind {tokenizer.kind!r}")
    normalizer = tokenizer.normalizer
    refused = {
        "with a list of ids": tokenizer.ids is not None,
        "with a table of characters of its own": normalizer.charsmap is not None,
        "with symbols that hold the mark of a space": any(
            piece.type == "user_defined" and not is_symbol(piece) for piece in tokenizer.pieces
        ),
        "whose mark of a space stands behind a word": tokenizer.layout.is_suffix,
        "that reads U+2581 in a text as a letter": normalizer.rule.keeps_space_marks,
    }
    for what, is_so in refused.items():
        if is_so:
            raise _refused(what)
    rule = normalizer.rule
    return {
        "kind": tokenizer.kind,
        "pieces": [[piece.text, _shortest(piece.score), piece.type] for piece in tokenizer.pieces],
        "pad_id": tokenizer.pad_id,
        "start_id": tokenizer.start_id,
        "end_id": tokenizer.end_id,
        "unknown_id": tokenizer.unknown_id,
        "byte_ids": list(tokenizer.byte_ids),
        "has_outer_mark": tokenizer.layout.has_outer_mark,
        "normalizer": {
            "form": rule.form,
            "folds": rule.folds,
            "marks": normalizer.marks,
            "spaces": "".join(sorted(normalizer.spaces)),
            "ignorable": _ranges(is_ignorable),
            "unwritten": _ranges(_is_unwritten) if tokenizer.byte_ids else [],
            "idle_joiners": IDLE_JOINERS if normalizer.drops_idle_joiners else None,
        },
    }


def _refused(what: str) -> ValueError:
    return ValueError(
        f"The page cannot split texts as this vocabulary does: it is one {what}. Expected a "
        "SentencePiece vocabulary, such as `keras-addnorm train` makes. Choose another run."
    )


def _shortest(score: float) -> float:
    """The number with the fewest digits that is the same in float32."""
    return float(str(np.float32(score)))


@functools.cache
def _ranges(holds: Callable[[str], bool]) -> list[list[int]]:
    """First and last code point of the runs of characters of which something holds."""
    runs: list[list[int]] = []
    for code in (code for codes in _LOOKED_AT for code in codes):
        if not holds(chr(code)):
            continue
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return runs


def _is_unwritten(character: str) -> bool:
    return not is_written(character)
