"""Trains SentencePiece models and explains why a training failed."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data.vocabulary import END_ID, PAD_ID, SPACE_MARK, START_ID, UNKNOWN_ID

# protobuf makes this class when it is imported, where type checkers cannot see it.
ModelProto: Any = sentencepiece_model_pb2.ModelProto  # type: ignore[attr-defined]

_TOO_LARGE = re.compile(r"Vocabulary size too high.*value <= (\d+)")
_TOO_SMALL = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")

# Unigram scores are stored as multiples of 1/256. Sums of such numbers are exact in float32 up to
# 65,536. So a segmentation does not depend on the text before it, and SentencePiece and the
# tokenizer in a graph cannot differ by rounding.
SCORE_STEPS_PER_UNIT = 256


class VocabularyTooLargeError(ArgumentError):
    """The texts have only `largest` pieces, fewer than a vocabulary is to have."""

    largest: int


def train_model(
    texts: Iterator[str],
    vocabulary_size: int,
    kind: str,
    character_coverage: float,
    *,
    rule_name: str,
    symbols: Mapping[str, str],
    byte_fallback: bool,
) -> bytes:
    """Trains a model on normalised texts.

    Args:
        texts: The sentences, at least one.
        vocabulary_size: Number of pieces, the four special ones included.
        kind: `"unigram"` or `"bpe"`.
        character_coverage: Share of the characters that the vocabulary must spell.
        rule_name: The name of the normalisation that the texts have had.
        symbols: The character that stands for each user-defined symbol in the texts, and the
            symbol.
        byte_fallback: Whether there are pieces for bytes.

    Returns:
        The serialised model.

    Raises:
        ValueError: If the texts do not allow a vocabulary of this size.
    """
    buffer = io.BytesIO()
    failures: list[Exception] = []

    def guarded() -> Iterator[str]:
        # SentencePiece replaces what an iterator raises by an error of its own.
        try:
            yield from texts
        except Exception as error:
            failures.append(error)

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=guarded(),
            model_writer=buffer,
            vocab_size=vocabulary_size,
            model_type=kind,
            character_coverage=character_coverage,
            normalization_rule_name="identity",
            user_defined_symbols=list(symbols),
            byte_fallback=byte_fallback,
            pad_id=PAD_ID,
            bos_id=START_ID,
            eos_id=END_ID,
            unk_id=UNKNOWN_ID,
            minloglevel=2,
        )
    except RuntimeError as error:
        if failures:
            raise failures[0] from None
        raise _training_error(str(error), vocabulary_size, kind) from error
    if failures:
        raise failures[0]
    model = ModelProto.FromString(buffer.getvalue())
    if kind == "unigram":
        _round_scores(model)
    model.normalizer_spec.name = rule_name
    for piece in model.pieces:
        if piece.type == model.SentencePiece.USER_DEFINED:
            piece.piece = symbols[piece.piece].replace(" ", SPACE_MARK)
    del model.trainer_spec.user_defined_symbols[:]
    model.trainer_spec.user_defined_symbols.extend(symbols.values())
    trained: bytes = model.SerializeToString(deterministic=True)
    return trained


def _training_error(message: str, vocabulary_size: int, kind: str) -> ValueError:
    """Says in this library's terms what SentencePiece's message means."""
    if match := _TOO_LARGE.search(message):
        error = VocabularyTooLargeError(
            f"`vocabulary_size={vocabulary_size}` is too large for this text: a {kind} vocabulary "
            f"of it has at most {match[1]} pieces.",
            remedy=f"Pass `vocabulary_size={match[1]}` or less, or more text.",
        )
        error.largest = int(match[1])
        return error
    if match := _TOO_SMALL.search(message):
        return ArgumentError(
            f"`vocabulary_size={vocabulary_size}` is too small for this text: its characters and "
            f"the special pieces alone are {match[1]}.",
            remedy="Pass a larger `vocabulary_size`, or a lower `character_coverage` to leave rare "
            "characters out.",
        )
    return ValueError(
        f"SentencePiece could not train a vocabulary of {vocabulary_size} pieces: {message}"
    )


def _round_scores(model: Any) -> None:
    for piece in model.pieces:
        piece.score = round(piece.score * SCORE_STEPS_PER_UNIT) / SCORE_STEPS_PER_UNIT
