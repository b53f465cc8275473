"""Translates texts with a trained run or with an export of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from keras_addnorm.decoding import translate
from keras_addnorm.runs.build import TrainedRun, as_user_errors
from keras_addnorm.serving import load_translator


def translate_texts(run: TrainedRun, texts: Sequence[str]) -> list[tuple[str, float]]:
    """Translates texts with the search that the run's configuration asks for.

    Args:
        run: A trained run.
        texts: The texts; an empty one gives an empty translation with the score 0.

    Returns:
        Text and score of each translation, in order.
    """
    search = run.config.evaluation
    found = translate(
        run.model,
        run.tokenizers,
        texts,
        num_beams=search.num_beams,
        length_penalty=search.length_penalty,
        max_length=search.max_length,
        batch_size=min(search.batch_size, max(1, len(texts))),
    )
    return list(zip(found.texts, map(float, found.scores), strict=True))


def translate_with_export(directory: Path, texts: Sequence[str]) -> list[tuple[str, float]]:
    """Translates texts with an exported model, whose search is part of it.

    Args:
        directory: The folder of the versions, or of one version.
        texts: The texts.

    Returns:
        Text and score of each translation, in order.

    Raises:
        UserError: If there is no exported model.
    """
    with as_user_errors():
        return list(load_translator(directory)(texts))
