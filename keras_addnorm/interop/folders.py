"""Checks that all exports share: of the model, its tokenizers and the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from keras_addnorm.data import Tokenizer, TokenizerPair
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer


def require_model(model: Any) -> None:
    """Check that what is to be exported is one of our models.

    Args:
        model: What was passed.

    Raises:
        TypeError: If it is something else.
    """
    if not isinstance(model, Seq2SeqTransformer):
        raise TypeError(
            f"Expected a Seq2SeqTransformer to export; received a {type(model).__name__}."
        )


def require_tokenizers(config: Seq2SeqConfig, tokenizers: TokenizerPair) -> None:
    """Check that tokenizers belong to a model.

    Args:
        config: The model's config.
        tokenizers: Its tokenizers.

    Raises:
        ValueError: If the sizes of the vocabularies are others.
    """
    expected = (config.source_vocabulary_size, config.target_vocabulary_size)
    received = (tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size)
    if expected != received:
        raise ValueError(
            "The tokenizer does not belong to the model. Expected a source and a target "
            f"vocabulary of {expected} pieces. Received: {received}. Pass the tokenizer that the "
            "model was trained with."
        )


def require_new(directory: str | os.PathLike[str]) -> Path:
    """Check that a folder is still to be made.

    Args:
        directory: The folder.

    Returns:
        Its path.

    Raises:
        FileExistsError: If it exists.
    """
    directory = Path(directory)
    if directory.exists():
        raise FileExistsError(
            f"Cannot export to '{directory}': it exists. Expected a folder to make. Pass another "
            "name, or remove it first."
        )
    return directory


def prepare(
    model: Any, tokenizer: Tokenizer | TokenizerPair | None, directory: str | os.PathLike[str]
) -> tuple[TokenizerPair | None, Path]:
    """Check what a format that knows token ids only is exported from, and where to.

    Args:
        model: The model.
        tokenizer: The tokenizers to put beside it, if any.
        directory: The folder to make.

    Returns:
        The tokenizers of both sides, if any, and the folder's path.

    Raises:
        TypeError: If `model` or `tokenizer` is something else.
        ValueError: If the tokenizer does not belong to the model.
        FileExistsError: If the folder exists.
    """
    require_model(model)
    tokenizers = None if tokenizer is None else TokenizerPair.of(tokenizer)
    if tokenizers is not None:
        require_tokenizers(model.config, tokenizers)
    return tokenizers, require_new(directory)
