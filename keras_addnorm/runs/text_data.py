"""The texts of a run: its sentence pairs and its tokenizers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from keras_addnorm.data import LineReport, TokenizerPair, line_reports, load_translation
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import UserError, as_user_errors
from keras_addnorm.runs.settings import RunConfig


def load_pairs(config: RunConfig, split: str) -> Any:
    """Loads the sentence pairs of a split.

    Args:
        config: The run's configuration.
        split: A split's name, sub-splits such as `train[:10%]` included.

    Returns:
        A `tf.data.Dataset` of `(source_text, target_text)`.

    Raises:
        UserError: If the data or the split does not exist.
    """
    with as_user_errors():
        return load_translation(
            config.data, source=config.source, target=config.target, split=split
        )


def load_texts(config: RunConfig, split: str) -> tuple[list[str], list[str]]:
    """Loads the texts of a split.

    Args:
        config: The run's configuration.
        split: As for `load_pairs`.

    Returns:
        The sources, and a reference for each.

    Raises:
        UserError: If the data or the split does not exist, or the split is empty.
    """
    pairs = list(string_pairs(load_pairs(config, split)))
    if not pairs:
        raise UserError(f"The split {split!r} of {config.data!r} has no sentence pair.")
    sources, references = zip(*pairs, strict=True)
    return list(sources), list(references)


def left_out_lines(config: RunConfig, split: str) -> list[LineReport]:
    """Counts the unusable lines that `load_pairs` leaves out.

    Args:
        config: The run's configuration.
        split: As for `load_pairs`; each split in it is counted as a whole.

    Returns:
        The report of each split.

    Raises:
        UserError: If the data or the split does not exist.
    """
    with as_user_errors():
        reports = line_reports(config.data, source=config.source, target=config.target, split=split)
    return list(reports.values())


def load_or_train_tokenizers(
    config: RunConfig,
    directory: RunDirectory,
    pairs: Any,
    say: Callable[[str], None] = lambda line: None,
) -> TokenizerPair:
    """Returns the run's tokenizers; the first call trains them on the training pairs.

    They are trained again where a killed process has left none, or one of two. A run that starts
    from another one takes that run's tokenizers. A vocabulary that is larger than the texts allow
    becomes the largest that they do, except in a strict training.

    Args:
        config: The run's configuration.
        directory: Where they are kept.
        pairs: The training pairs.
        say: Takes lines for the user.

    Returns:
        The tokenisers.

    Raises:
        UserError: If the texts do not allow such a vocabulary.
    """
    if directory.has_tokenizers():
        with as_user_errors():
            return TokenizerPair.load(directory.tokenizer)
    with as_user_errors():
        if config.training.start_from:
            tokenizers = TokenizerPair.load(RunDirectory(config.training.start_from).tokenizer)
        else:
            tokenizers = _train_tokenizers(config, pairs, say)
    tokenizers.save(directory.tokenizer)
    return tokenizers


def _train_tokenizers(config: RunConfig, pairs: Any, say: Callable[[str], None]) -> TokenizerPair:
    wanted = config.tokenizer.vocabulary_size
    tokenizers = TokenizerPair.train(
        pairs, **dataclasses.asdict(config.tokenizer), allow_smaller=not config.training.strict
    )
    sizes = {"source": tokenizers.source, "target": tokenizers.target}
    for side, tokenizer in (
        {"": tokenizers.source}.items() if tokenizers.is_joint else sizes.items()
    ):
        if tokenizer.vocabulary_size < wanted:
            whose = f" {side}" if side else ""
            say(
                f"The{whose} vocabulary has {tokenizer.vocabulary_size:,} pieces, not {wanted:,}: "
                "there are no more in the training text."
            )
    return tokenizers
