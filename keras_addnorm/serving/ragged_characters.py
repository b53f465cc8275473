"""Texts as one row of characters with the places where texts begin, which are searched for.

Also patterns for RE2.
"""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from keras_addnorm.serving import unicode_tables as unicode

INVALID = 0xFFFD
"""What stands for bytes that are no UTF-8."""

# NULs, and halves of surrogate pairs as UTF-8 would write them.
_MEANINGLESS = r"[\x{0}\x{d800}-\x{dfff}]"


def meaningful(texts: tf.Tensor) -> tf.Tensor:
    """The texts without what means nothing, as `basics.text.meaningful_text` does it."""
    return tf.strings.regex_replace(texts, _MEANINGLESS, "")


def valid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """The texts with U+FFFD for what is no UTF-8, as Python's `decode` with `"replace"`."""
    return tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace", replacement_char=INVALID
    )


def to_characters(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The code points of texts, (N,), and where each text begins, (B + 1,)."""
    characters = tf.strings.unicode_decode(texts, "UTF-8", replacement_char=INVALID)
    return characters.values, characters.row_splits


def to_texts(characters: tf.Tensor, row_splits: tf.Tensor) -> tf.Tensor:
    """The texts of code points."""
    rows = tf.RaggedTensor.from_row_splits(characters, row_splits, validate=False)
    return tf.strings.unicode_encode(rows, "UTF-8")


def expand(sizes: tf.Tensor, row_splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gives each of N elements some places of its own.

    Args:
        sizes: How many places, (N,), int32.
        row_splits: Where each row of elements begins, (B + 1,).

    Returns:
        The element of each place, (M,); its number among the element's places, from 0, (M,); and
        where each row of places begins, (B + 1,).
    """
    ends = tf.cumsum(sizes)
    places = tf.range(tf.reduce_sum(sizes))
    origin = upper_bounds(ends, places, tf.int32)
    place = places - tf.gather(ends - sizes, origin)
    row_splits = tf.gather(tf.concat([[0], tf.cast(ends, tf.int64)], 0), row_splits)
    return origin, place, row_splits


def row_ids(row_splits: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """The row of each of `size` values, counted from 1."""
    index = tf.range(tf.cast(size, tf.int64))
    return upper_bounds(row_splits, index, tf.int32)


def char_class(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges of code points as the inside of a character class of RE2."""
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)


def escaped(text: str) -> str:
    """A pattern of RE2 for one text."""
    return "".join(rf"\x{{{ord(character):x}}}" for character in text)


def look_up_pages(pages: unicode.Pages, codes: tf.Tensor) -> tf.Tensor:
    """The number of each code point."""
    start = tf.gather(tf.constant(pages.starts), tf.bitwise.right_shift(codes, unicode.PAGE_BITS))
    place = start + tf.bitwise.bitwise_and(codes, unicode.PAGE_SIZE - 1)
    return tf.gather(tf.constant(pages.pages), place)


def lower_bounds(rising: tf.Tensor, values: tf.Tensor, dtype: tf.DType = tf.int64) -> tf.Tensor:
    """For each value, how many elements of a sorted vector are smaller."""
    return tf.raw_ops.LowerBound(sorted_inputs=rising[None], values=values[None], out_type=dtype)[0]


def upper_bounds(rising: tf.Tensor, values: tf.Tensor, dtype: tf.DType = tf.int64) -> tf.Tensor:
    """For each value, how many elements of a sorted vector are not larger."""
    return tf.raw_ops.UpperBound(sorted_inputs=rising[None], values=values[None], out_type=dtype)[0]
