"""Translates texts with a trained run."""

from __future__ import annotations

from collections.abc import Sequence

from keras_addnorm.decoding import translate
from keras_addnorm.runs.build import TrainedRun


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
