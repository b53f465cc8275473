"""Holds out a part of the training pairs for validation, the same pairs each time."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.data.pairs import Pairs
from keras_addnorm.data.strings import describe, is_tf_dataset, string_pairs

_SHARE, _AT_LEAST, _AT_MOST = 0.01, 100, 2_000
_LARGEST_SHARE = 0.1


def hold_out(pairs: Iterable[Any], count: int | None = None) -> tuple[Any, Any]:
    """Divides pairs into those to train on and those to validate on.

    A hash of the source sentence decides, so the same pairs are held out each time, in whatever
    order they come, and all translations of a sentence stay on one side.

    Args:
        pairs: Pairs (source text, target text) that can be read more than once: what
            `load_translation` returns, a list, or a `tf.data.Dataset` of two string scalars.
        count: How many pairs to hold out; a few more where a sentence comes several times. By
            default a hundredth, but from 100 to 2,000 pairs, and at most a tenth.

    Returns:
        The pairs to train on and those that are held out, of the kind that was given.

    Raises:
        TypeError: If an element of `pairs` is not a pair of strings, or they can be read only once.
        ValueError: If `count` is no int of at least 1, or one side would have no pair.

    Example:
        >>> from keras_addnorm.data import hold_out
        >>> training, validation = hold_out([(f"text {i}", f"Text {i}") for i in range(50)])
        >>> len(training), len(validation)
        (45, 5)
    """
    if hasattr(pairs, "__next__"):
        raise ArgumentTypeError(
            "Pairs are read more than once to be divided.",
            "a list, or a tf.data.Dataset",
            "Put them in a list.",
            received=describe(pairs),
        )
    if count is not None and not is_whole(count, 1):
        raise ArgumentError(expected="at least 1 pair to hold out", count=count)
    hashes = np.fromiter((_hash(source) for source, _ in string_pairs(pairs)), np.uint64)
    total = len(hashes)
    if count is None:
        usual = min(max(_AT_LEAST, round(total * _SHARE)), _AT_MOST)
        count = max(1, min(usual, int(total * _LARGEST_SHARE)))
    is_held = (
        hashes <= np.partition(hashes, count - 1)[count - 1]
        if count < total
        else np.ones(total, bool)
    )
    if is_held.all():
        raise ValueError(
            f"{count:,} of {total:,} pairs cannot be held out: none would be left to train on. "
            "Expected more pairs with different source sentences, or validation data of their own."
        )
    return _chosen(pairs, ~is_held), _chosen(pairs, is_held)


def _chosen(pairs: Iterable[Any], which: np.ndarray) -> Any:
    """Some of the pairs, of the kind that was given."""
    if isinstance(pairs, Pairs):
        return _Chosen(pairs, which)
    if is_tf_dataset(pairs):
        return _Chosen(pairs, which).as_dataset()
    return list(itertools.compress(pairs, which))


class _Chosen(Pairs):
    """Some of the pairs that are read, in their order.

    Args:
        pairs: All pairs.
        which: For each of them, whether it is one of these.
    """

    def __init__(self, pairs: Iterable[Any], which: np.ndarray) -> None:
        self._pairs = pairs
        self._which = which

    def __iter__(self) -> Iterator[tuple[str, str]]:
        number = -1
        for number, pair in enumerate(string_pairs(self._pairs)):
            if number < len(self._which) and self._which[number]:
                yield pair
        if number + 1 != len(self._which):
            raise ValueError(
                f"There were {len(self._which):,} pairs when some were held out, and now there are "
                f"{number + 1:,}. Expected data that do not change while they are read."
            )

    @functools.cached_property
    def _count(self) -> int:
        return int(self._which.sum())


def _hash(text: str) -> int:
    """64 bits that depend on the words alone, not on their case or the spaces between them."""
    words = " ".join(text.casefold().split())
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little")
