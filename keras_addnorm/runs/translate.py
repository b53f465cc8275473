"""Translates texts with a trained run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras

from keras_addnorm.decoding import Translation, translate
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.trained_run import TrainedRun


def translate_texts(
    run: TrainedRun, texts: Sequence[str], *, verbose: int = 0
) -> list[Translation]:
    """Translates texts with the search that the run's configuration asks for."""
    bar = keras.utils.Progbar(len(texts), verbose=verbose, unit_name="sentence")
    return [found[0] for found in n_best_translations(run, texts, done=bar.update)]


def n_best_translations(
    run: TrainedRun,
    texts: Sequence[str],
    n_best: int = 1,
    *,
    done: Callable[[int], object] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> list[list[Translation]]:
    """Translates texts, each in several ways.

    Args:
        run: A trained run, whose configuration says how to search.
        texts: The texts.
        n_best: The most translations of each, at most `evaluation.num_beams`.
        done: Takes the number of texts that are translated so far.
        source_language: The language of the texts, where the run was imported without one.
        target_language: The language to translate into, likewise.

    Returns:
        For each text, in order, its translations and their scores, the best first.
    """
    with as_user_errors():
        return translate(
            run.model,
            run.tokenizers,
            texts,
            search=run.search(n_best),
            source_language=source_language,
            target_language=target_language,
            batch_size=min(run.config.evaluation.batch_size, max(1, len(texts))),
            done=done,
        ).n_best
