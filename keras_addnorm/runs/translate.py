"""Translates texts with a trained run or with an export of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import keras

from keras_addnorm.decoding import translate
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.trained_run import TrainedRun
from keras_addnorm.serving import load_translator

# Batches between two movements of the progress bar; each call sorts its sentences by length.
_BATCHES_AT_ONCE = 4


def translate_texts(
    run: TrainedRun, texts: Sequence[str], *, verbose: int = 0
) -> list[tuple[str, float]]:
    """Translates texts with the search that the run's configuration asks for.

    Args:
        run: A trained run.
        texts: The texts, of any length; an empty one gives an empty translation with the score 0.
        verbose: 1 for a progress bar, 0 for none.

    Returns:
        Text and score of each translation, in order.
    """
    bar = keras.utils.Progbar(len(texts), verbose=verbose, unit_name="sentence")
    return [found[0] for found in n_best_translations(run, texts, done=bar.update)]


def n_best_translations(
    run: TrainedRun,
    texts: Sequence[str],
    n_best: int = 1,
    *,
    done: Callable[[int], object] = lambda count: None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> list[list[tuple[str, float]]]:
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
    search = run.config.evaluation
    batch_size = min(search.batch_size, max(1, len(texts)))
    # Texts of like length together, so that little is padding; each goes back to its place.
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    results: list[list[tuple[str, float]]] = [[] for _ in texts]
    strategy = search.strategy(n_best)
    for start in range(0, len(order), _BATCHES_AT_ONCE * batch_size):
        some = order[start : start + _BATCHES_AT_ONCE * batch_size]
        with as_user_errors():
            found = translate(
                run.model,
                run.tokenizers,
                [texts[index] for index in some],
                strategy,
                max_length=search.max_length,
                constraints=search.constraints,
                shortlist=run.shortlist,
                splitting=run.config.splitting,
                source_language=source_language,
                target_language=target_language,
                batch_size=batch_size,
            )
        for index, translations in zip(some, found.n_best, strict=True):
            results[index] = [(each.text, each.score) for each in translations]
        done(start + len(some))
    return results


def load_export(
    directory: str | Path,
    source_language: str | None = None,
    target_language: str | None = None,
    *,
    verify: bool = True,
) -> Callable[[Sequence[str]], list[tuple[str, float]]]:
    """Loads an exported model, whose search is part of it.

    Args:
        directory: The folder of the versions, or of one version.
        source_language: The language of the texts, of an export whose input it is.
        target_language: The language to translate into, likewise.
        verify: Whether the files are compared with the export's digests.

    Returns:
        A function from texts to the text and score of each translation, in order.

    Raises:
        UserError: If there is no exported model, or a file of it is damaged.
    """
    with as_user_errors():
        translator = load_translator(directory, verify=verify)

    def translations(texts: Sequence[str]) -> list[tuple[str, float]]:
        with as_user_errors():
            return list(translator(texts, source_language, target_language))

    return translations
