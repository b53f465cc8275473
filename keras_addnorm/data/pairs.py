"""Sentence pairs as a stream of Python strings that can be read again and again."""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

_PAIRS_AT_ONCE = 1024


class Pairs(abc.ABC):
    """Pairs `(source text, target text)`, two strings each, in an order that is always the same.

    Each iteration reads them anew; nothing is kept in memory. `len(pairs)` counts them, which may
    read them once. What else a `tf.data.Dataset` offers (`take`, `batch`, `map`, ...) is that of
    `as_dataset()`.

    Example:
        >>> from keras_addnorm.data import load_translation
        >>> rows = [{"en": "a dog", "de": "ein Hund"}, {"en": "a cat", "de": "eine Katze"}]
        >>> pairs = load_translation(rows, source="en", target="de", split="train")
        >>> list(pairs)
        [('a dog', 'ein Hund'), ('a cat', 'eine Katze')]
        >>> len(pairs.as_dataset().batch(2))
        1
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

    def as_dataset(self) -> tf.data.Dataset:
        """The pairs as a `tf.data.Dataset` of two string scalars, whose length is known."""
        import tensorflow as tf

        def batches() -> Iterator[tuple[list[bytes], ...]]:
            pairs = iter(self)
            while some := list(itertools.islice(pairs, _PAIRS_AT_ONCE)):
                yield tuple([text.encode() for text in side] for side in zip(*some, strict=True))

        texts = tf.TensorSpec((None,), tf.string)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=(texts, texts))
        return dataset.unbatch().apply(tf.data.experimental.assert_cardinality(len(self)))

    def as_numpy_iterator(self) -> Iterator[tuple[bytes, bytes]]:
        """The pairs as UTF-8, as a `tf.data.Dataset` gives them."""
        return ((source.encode(), target.encode()) for source, target in self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        return getattr(self.as_dataset(), name)
