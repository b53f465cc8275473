"""Translation probabilities of tokens, and IBM's first model, which learns them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_PASSES = 1000
"""Passes over the pairs: probabilities have settled long before."""


class TranslationTable:
    """p(target | source) of all tokens that stand in one sentence pair; the others have none.

    Args:
        keys: `(C,)` int64, rising: `source * target_size + target` of each pair of tokens.
        target_size: Number of target tokens.
    """

    def __init__(self, keys: np.ndarray, target_size: int) -> None:
        self.keys, self.target_size = keys, target_size
        self.source, self.target = np.divmod(keys, target_size)
        self.probability = np.ones(len(keys))

    def cells_of(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Returns the places of pairs of tokens in the table; C where a pair is not in it."""
        keys = source * self.target_size + target
        places = np.searchsorted(self.keys, keys)
        known = self.keys[np.minimum(places, len(self.keys) - 1)] == keys
        return np.where(known, places, len(self.keys))

    def set_counts(self, counts: np.ndarray) -> None:
        """Takes p(target | source) from counts of the pairs of tokens."""
        totals = np.bincount(self.source, counts)[self.source]
        self.probability = counts / np.where(totals > 0, totals, 1.0)


def ibm_model_1(
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    target_size: int,
    iterations: int,
) -> TranslationTable:
    """Estimates p(target | source) with expectation maximisation, the order of tokens left aside.

    Args:
        sources: The ids of each sentence; what stands for the empty word is among them.
        targets: The ids of its translation.
        target_size: Number of target tokens.
        iterations: Number of passes over the sentences.

    Returns:
        The table.

    Reference:
        Brown et al., "The Mathematics of Statistical Machine Translation", 1993, section 4.1.
    """
    source_lengths, target_lengths = (np.array([*map(len, side)]) for side in (sources, targets))
    sizes = source_lengths * target_lengths
    pair = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    source_position, target_position = np.divmod(place, target_lengths[pair])
    source_position += (np.cumsum(source_lengths) - source_lengths)[pair]
    target_position += (np.cumsum(target_lengths) - target_lengths)[pair]
    keys, cell = np.unique(
        np.concatenate(sources)[source_position] * target_size
        + np.concatenate(targets)[target_position],
        return_inverse=True,
    )
    table = TranslationTable(keys, target_size)
    for _ in range(iterations):
        share = table.probability[cell]  # Of each source position in each target position.
        share /= np.bincount(target_position, share)[target_position]
        table.set_counts(np.bincount(cell, share))
    return table
