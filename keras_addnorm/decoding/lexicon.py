"""A lexicon of translation probabilities, estimated from sentence pairs (IBM model 1)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_addnorm.basics.argument_checks import require_whole

_MOST_COOCCURRENCES = 10_000_000
"""Largest number of token pairs, which take half a GiB; of larger texts, sentences are skipped."""


@dataclasses.dataclass(frozen=True, eq=False)
class Lexicon:
    """The most probable translations of each source token, by IBM's first model.

    Args:
        candidates: `(V_source, C)` int32: target tokens, the most probable first.
        probabilities: `(V_source, C)` float32: p(target token | source token); 0 where a source
            token has fewer candidates.
        frequencies: `(V_target,)` float32: how often each target token stands in a sentence.

    Reference:
        Brown et al., "The Mathematics of Statistical Machine Translation", 1993, section 4.1.
    """

    candidates: Any
    probabilities: Any
    frequencies: Any

    @classmethod
    def estimate(
        cls,
        pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
        *,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        num_candidates: int = 64,
        iterations: int = 5,
    ) -> Lexicon:
        """Estimate translation probabilities with expectation maximisation.

        The end token of the sources stands for the empty word: it can be translated with anything.

        Args:
            pairs: The training sentences as ids, each side with its end token. They are read once,
                and of a text with more than ten million pairs of tokens, only every second, fourth,
                ... sentence is kept.
            source_vocabulary_size: Number of source tokens.
            target_vocabulary_size: Number of target tokens.
            num_candidates: Number of translations that are kept for each source token, C.
            iterations: Number of passes over the pairs.

        Returns:
            The lexicon.

        Raises:
            ValueError: If there is no pair, an id lies outside its vocabulary, or a number does not
                fit.

        Example:
            >>> pairs = [([5, 6, 2], [8, 9, 2]), ([5, 7, 2], [8, 10, 2])]
            >>> lexicon = Lexicon.estimate(
            ...     pairs, source_vocabulary_size=8, target_vocabulary_size=12
            ... )
            >>> lexicon.candidates[[6, 7], 0].tolist()
            [9, 10]
        """
        require_whole(
            "A lexicon counts.",
            source_vocabulary_size=source_vocabulary_size,
            target_vocabulary_size=target_vocabulary_size,
            num_candidates=num_candidates,
            iterations=iterations,
        )
        sources, targets = _sentences(pairs)
        _check("source", sources, source_vocabulary_size)
        _check("target", targets, target_vocabulary_size)
        frequencies = np.bincount(np.concatenate(targets), minlength=target_vocabulary_size)
        source, target, probability = _translation_probabilities(
            sources, targets, target_vocabulary_size, iterations
        )
        # The most probable of each source token first, and its place among them.
        order = np.lexsort((target, -probability, source))
        source, target, probability = source[order], target[order], probability[order]
        place = np.arange(len(source)) - np.searchsorted(source, source)
        kept = place < min(num_candidates, target_vocabulary_size)
        shape = (source_vocabulary_size, place[kept].max() + 1)
        candidates, probabilities = np.zeros(shape, "int32"), np.zeros(shape, "float32")
        candidates[source[kept], place[kept]] = target[kept]
        probabilities[source[kept], place[kept]] = probability[kept]
        return cls(candidates, probabilities, (frequencies / len(targets)).astype("float32"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays to a file that ends in `.npz`."""
        np.savez_compressed(path, **vars(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Lexicon:
        """Read what `save` wrote.

        Args:
            path: The file.

        Returns:
            The lexicon.

        Raises:
            ValueError: If it is another file.
        """
        try:
            with open(path, "rb") as file, np.load(file) as arrays:
                return cls(**arrays)
        except OSError:
            raise
        except Exception as error:  # What a zip without sense leads to.
            raise ValueError(
                f"Expected a file with a whole lexicon. Received: {path}, which is none, "
                "or not whole. Delete it, to have it estimated again."
            ) from error


def _sentences(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return both sides, thinned out evenly while there are too many."""
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    total, stride = 0, 1
    for number, pair in enumerate(_listed(pairs)):
        if number % stride:
            continue
        source, target = _ids_of(pair)
        if not len(source) or not len(target):
            continue
        kept.append((source, target))
        total += len(source) * len(target)
        if total > _MOST_COOCCURRENCES and len(kept) > 1:
            kept, stride = kept[::2], 2 * stride
            total = sum(source.size * target.size for source, target in kept)
    if not kept:
        raise ValueError("There are no sentence pairs to learn translations of tokens from.")
    sources, targets = zip(*kept, strict=True)
    return list(sources), list(targets)


def _listed(pairs: Any) -> Iterable[Any]:
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise ValueError(
            "A lexicon is estimated from sentence pairs. Expected a list of two rows of ids each. "
            f"Received: {pairs!r:.80}"
        )
    return pairs


def _ids_of(pair: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return both sides of a pair as arrays of ids."""
    try:
        source, target = (np.asarray(side) for side in pair)
        are_ids = all(
            ids.ndim == 1 and (not ids.size or ids.dtype.kind in "iu") for ids in (source, target)
        )
    except (TypeError, ValueError):
        are_ids = False
    if not are_ids:
        raise ValueError(
            "A lexicon is estimated from sentence pairs. Expected two rows of integer ids. "
            f"Received: {pair!r:.80}"
        )
    return source.astype("int64"), target.astype("int64")


def _check(side: str, sentences: Sequence[np.ndarray], vocabulary_size: int) -> None:
    low, high = min(map(np.min, sentences)), max(map(np.max, sentences))
    if low < 0 or high >= vocabulary_size:
        raise ValueError(
            f"A {side} id lies outside the vocabulary. Expected 0 <= id < {vocabulary_size}. "
            f"Received ids from {low} to {high}. Were the pairs encoded with another tokenizer?"
        )


def _translation_probabilities(
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    target_vocabulary_size: int,
    iterations: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return p(target | source) of all that stand in one sentence pair, as three long arrays."""
    source_lengths, target_lengths = (np.array([*map(len, side)]) for side in (sources, targets))
    sizes = source_lengths * target_lengths
    pair = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    source_position, target_position = np.divmod(place, target_lengths[pair])
    source_position += (np.cumsum(source_lengths) - source_lengths)[pair]
    target_position += (np.cumsum(target_lengths) - target_lengths)[pair]
    cells, cell = np.unique(
        np.concatenate(sources)[source_position] * target_vocabulary_size
        + np.concatenate(targets)[target_position],
        return_inverse=True,
    )
    source, target = np.divmod(cells, target_vocabulary_size)
    probability = np.ones(len(cells))
    for _ in range(iterations):
        share = probability[cell]  # Of each source position in each target position.
        share /= np.bincount(target_position, share)[target_position]
        count = np.bincount(cell, share)
        probability = count / np.bincount(source, count)[source]
    return source, target, probability
