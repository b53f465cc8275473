"""Checks that all exports share: of the model, its tokenizers and the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.models.checks import require_finite, require_model, require_vocabularies


def require_new(directory: str | os.PathLike[str]) -> Path:
    """Return the path of a folder, or raise a `FileExistsError` if it exists."""
    directory = Path(directory)
    if directory.exists():
        raise FileExistsError(
            f"Cannot export to '{directory}': it exists. Expected a folder to make. Pass another "
            "name, or remove it first."
        )
    return directory


def prepare(
    model: Any, tokenizer: BaseTokenizer | TokenizerPair | None, directory: str | os.PathLike[str]
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
        ValueError: If the tokenizer does not belong to the model, or a weight is not finite.
        FileExistsError: If the folder exists.
    """
    require_finite(require_model(model))
    tokenizers = None if tokenizer is None else TokenizerPair.of(tokenizer)
    if tokenizers is not None:
        require_vocabularies(model.config, tokenizers)
    return tokenizers, require_new(directory)


def never_generated(config: Seq2SeqConfig, tokenizers: TokenizerPair | None) -> list[int]:
    """Return the ids that no output holds: special ones, and those that have no piece."""
    unused = () if tokenizers is None else getattr(tokenizers.target, "unused_ids", ())
    return sorted({*config.special_ids.never_generated, *unused})
