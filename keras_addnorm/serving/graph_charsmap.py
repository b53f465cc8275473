"""SentencePiece's table of characters inside a TensorFlow graph.

At each place of a text the longest entry is replaced, and the text goes on behind it. The longest
entry at every place is found by look-ups of its two halves, as pieces are. Which places the text
comes by follows by doubling: from those that are known, on by 1, 2, 4, ... replacements.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_addnorm.data.normalization import Charsmap
from keras_addnorm.serving.ragged_characters import (
    char_class,
    expand,
    row_ids,
    to_characters,
    to_texts,
    valid_utf8,
)
from keras_addnorm.serving.string_numbers import StringNumbers, match
from keras_addnorm.serving.unicode_tables import ranges


class _Numbered(NamedTuple):
    """The entries of a table as arrays, by their numbers.

    Attributes:
        numbers: The numbers.
        span: The size of each entry; 0 of a string that is none.
        sizes: The size of what each entry becomes.
        starts: Where that begins in `parts`.
        parts: The characters of all that entries become.
        first: The characters that entries begin with.
    """

    numbers: StringNumbers
    span: np.ndarray
    sizes: np.ndarray
    starts: np.ndarray
    parts: np.ndarray
    first: list[int]


# The vocabularies of two languages mostly have the same table, of 200,000 entries.
@functools.lru_cache(maxsize=2)
def _numbered(charsmap: Charsmap) -> _Numbered:
    entries = charsmap.entries()
    numbers = StringNumbers()
    entry = {numbers.add(source): target for source, target in entries.items()}
    count = len(numbers.texts)
    is_entry = np.zeros(count, bool)
    is_entry[list(entry)] = True
    targets = [entry.get(number, "") for number in range(count)]
    sizes = np.array([len(target) for target in targets], np.int32)
    return _Numbered(
        numbers,
        np.where(is_entry, numbers.lengths, 0).astype(np.int32),
        sizes,
        np.cumsum([0, *sizes[:-1]], dtype=np.int32),
        np.array([ord(character) for character in "".join(targets)] or [0], np.int32),
        sorted({ord(source[0]) for source in entries}),
    )


class GraphCharsmap:
    """Replaces the entries of a table, the longest first, from left to right.

    Args:
        charsmap: The table.

    Attributes:
        table: The lookup table.
    """

    def __init__(self, charsmap: Charsmap) -> None:
        found = _numbered(charsmap)
        self.table = found.numbers.table()
        self._span, self._sizes = found.span, found.sizes
        self._starts, self._parts = found.starts, found.parts
        self._longest = int(found.numbers.lengths.max())
        self._unchanged = f"[^{char_class(ranges(found.first))}]*"

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Replaces the entries in texts, (B,)."""
        unchanged = tf.reduce_all(tf.strings.regex_full_match(texts, self._unchanged))
        return tf.cond(unchanged, lambda: tf.identity(texts), lambda: self._replace(texts))

    def _replace(self, texts: tf.Tensor) -> tf.Tensor:
        characters, row_splits = to_characters(valid_utf8(texts))
        size = tf.size(characters)
        # No entry goes on over the end of a text: entries are looked for at their last characters.
        ending = match(self.table, characters, self._longest)  # (N, W)
        span, number = self._longest_at_each_start(ending, row_splits)
        is_reached = self._reached(tf.maximum(span, 1), size)
        reached = tf.where(is_reached)[:, 0]
        number, character = tf.gather(number, reached), tf.gather(characters, reached)
        counted = tf.concat([[0], tf.cumsum(tf.cast(is_reached, tf.int64))], 0)
        row_splits = tf.gather(counted, row_splits)
        sizes = tf.where(number > 0, tf.gather(tf.constant(self._sizes), number), 1)
        origin, place, row_splits = expand(sizes, row_splits)
        number = tf.gather(number, origin)
        part = tf.gather(tf.constant(self._starts), number) + place
        part = tf.gather(tf.constant(self._parts), tf.where(number > 0, part, 0))
        out = tf.where(number > 0, part, tf.gather(character, origin))
        return to_texts(out, row_splits)

    def _longest_at_each_start(
        self, ending: tf.Tensor, row_splits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The size and the number of the longest entry that begins at each character, (N,)."""
        size = tf.shape(ending)[0]
        start = tf.range(size)
        row_end = tf.gather(row_splits, row_ids(row_splits, size))
        left = tf.cast(row_end, tf.int32) - start
        number = span = tf.zeros_like(start)
        for length in range(1, self._longest + 1):
            column = ending[length - 1 :, self._longest - length]
            column = tf.pad(column, [[0, tf.minimum(length - 1, size)]])
            found = tf.gather(tf.constant(self._span), column)
            is_entry = (found > 0) & (length <= left)
            number = tf.where(is_entry, column, number)
            span = tf.where(is_entry, found, span)
        return span, number

    @staticmethod
    def _reached(span: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        """The characters that a replacement begins at, if each goes on for `span` characters."""
        following = tf.concat([tf.range(size) + span, [size]], 0)
        is_reached = tf.concat([[True], tf.zeros([size], tf.bool)], 0)

        def double(
            step: tf.Tensor, is_reached: tf.Tensor, following: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            more = tf.boolean_mask(following, is_reached)[:, None]
            is_reached = tf.tensor_scatter_nd_update(
                is_reached, more, tf.ones_like(more[:, 0], tf.bool)
            )
            return step * 2, is_reached, tf.gather(following, following)

        _, is_reached, _ = tf.while_loop(
            lambda step, *_: step <= size, double, (tf.constant(1), is_reached, following)
        )
        return is_reached[:size]
