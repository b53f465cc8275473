"""Checks of models, and of the tokenizers that belong to them."""

from __future__ import annotations

from typing import Any, Protocol

from keras_addnorm.basics.arrays import not_finite
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.models.config import Seq2SeqConfig
from keras_addnorm.models.seq2seq import Seq2SeqTransformer


class _Tokenizer(Protocol):
    pad_id: int
    start_id: int
    end_id: int

    @property
    def vocabulary_size(self) -> int: ...


class _Tokenizers(Protocol):
    @property
    def source(self) -> _Tokenizer: ...

    @property
    def target(self) -> _Tokenizer: ...


def require_model(model: Any) -> Seq2SeqTransformer:
    """Return the model, or raise a `TypeError` if it is no `Seq2SeqTransformer`."""
    if not isinstance(model, Seq2SeqTransformer):
        raise ArgumentTypeError(
            "This needs a model that can be described by a Seq2SeqConfig.",
            "a Seq2SeqTransformer",
            received=f"a {type(model).__name__}",
        )
    return model


def require_finite(model: Seq2SeqTransformer) -> None:
    """Check that all weights of a model are numbers, before it is written for others.

    Args:
        model: The model.

    Raises:
        ValueError: If one is NaN or infinite; the message names the weights.
    """
    if found := not_finite(model.weights):
        raise ArgumentError(
            "The model has weights that are NaN or infinite, and would translate nothing.",
            "finite numbers",
            "Load the last good checkpoint.",
            received=f"such in {len(found)} of {len(model.weights)} weights: "
            f"{', '.join(found[:4])}{', ...' if len(found) > 4 else ''}",
        )


def require_vocabularies(config: Seq2SeqConfig, tokenizers: _Tokenizers) -> None:
    """Check that tokenizers have as many pieces as a model.

    Args:
        config: The model's config.
        tokenizers: A `TokenizerPair`, or whatever has two tokenizers as `source` and `target`.

    Raises:
        ValueError: If they do not.
    """
    for side, tokenizer, expected in (
        ("source", tokenizers.source, config.source_vocabulary_size),
        ("target", tokenizers.target, config.target_vocabulary_size),
    ):
        if tokenizer.vocabulary_size != expected:
            raise ArgumentError(
                "The tokenizer does not belong to the model.",
                f"a {side} vocabulary of {expected} pieces",
                "Pass the tokenizer that the model was trained with. If its table has more rows "
                "than there are pieces, fill the ids up: PieceIds.filled_up_to(rows).",
                value=tokenizer.vocabulary_size,
            )


def require_tokenizers(config: Seq2SeqConfig, tokenizers: _Tokenizers) -> None:
    """Check that tokenizers belong to a model: sizes of the vocabularies and special ids.

    Args:
        config: The model's config.
        tokenizers: As for `require_vocabularies`.

    Raises:
        ValueError: If they do not.
    """
    require_vocabularies(config, tokenizers)
    for tokenizer in (tokenizers.source, tokenizers.target):
        ids = (config.pad_id, config.start_id, config.end_id)
        own = (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id)
        if ids != own:
            raise ArgumentError(
                "The model has other special ids than the tokenizer: expected pad, start and end "
                f"{own}.",
                remedy="Leave them at their defaults in Seq2SeqConfig.",
                received=str(ids),
            )
