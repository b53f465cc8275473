"""Sentence pairs as a stream of Python strings that can be read again and again."""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

_PAIRS_AT_ONCE = 1024


class Pairs(abc.ABC):
    """Pairs `(source text, target text)`, two strings each, in an order that is always the same.

    Each iteration reads them anew; nothing is kept in memory. `len(pairs)` counts them, which may
    read them once.
    """

    @abc.abstractmethod
    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs from the first one on."""

    def __len__(self) -> int:
        """The number of pairs."""
        return self._count

    @functools.cached_property
    def _count(self) -> int:
        return sum(1 for _ in self)

    @property
    def is_counted(self) -> bool:
        """Whether a data set of the pairs has a length, for which they may be read at once."""
        return True

    def as_dataset(self) -> tf.data.Dataset:
        """The pairs as a `tf.data.Dataset` of two string scalars."""
        import tensorflow as tf

        def batches() -> Iterator[tuple[list[bytes], ...]]:
            pairs = iter(self)
            while some := list(itertools.islice(pairs, _PAIRS_AT_ONCE)):
                yield tuple([text.encode() for text in side] for side in zip(*some, strict=True))

        texts = tf.TensorSpec((None,), tf.string)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=(texts, texts))
        dataset = dataset.unbatch()
        if not self.is_counted:
            return dataset
        return dataset.apply(tf.data.experimental.assert_cardinality(len(self)))
