"""Numbers for strings, so that a graph can find them in a text by look-ups of their two parts.

A string of n characters has two parts. The length of the second part is the largest power of two
below n. So all strings of up to W characters are found in 1 + log2(W) look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data.long_words import LONGEST_WORD

# The key of a string combines the numbers of its two parts, with this many bits for each.
_KEY_BITS = 32
# The number of every character that occurs in no string.
UNKNOWN = 1


class StringNumbers:
    """Numbers for strings and for the parts that they are composed of.

    The number 0 is no string; 1 is any character that occurs in no string.

    Attributes:
        numbers: The number of each string by its key. The key of a character is -1 minus its code
            point.
        texts: The strings, in the order of their numbers.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.texts = ["", "?"]

    def add(self, text: str) -> int:
        """Gives a string a number, if it has none, and returns it; long ones are refused."""
        if len(text) > LONGEST_WORD:
            raise ArgumentError(
                "A graph looks for each piece at each character of a text, with memory for the "
                "longest one.",
                f"pieces of at most {LONGEST_WORD:,} characters",
                "Split texts in Python, with the tokenizer itself.",
                received=f"one of {len(text):,}",
            )
        if len(text) == 1:
            key = -1 - ord(text)
        else:
            cut = len(text) - 2 ** ((len(text) - 1).bit_length() - 1)
            key = self.add(text[:cut]) * 2**_KEY_BITS + self.add(text[cut:])
        number = self.numbers.setdefault(key, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

    @property
    def lengths(self) -> np.ndarray:
        """The number of characters of each string."""
        return np.array([len(text) for text in self.texts], np.int32)

    def table(self, others: Mapping[int, int] | None = None) -> tf.lookup.StaticHashTable:
        """A lookup table of the numbers, and of other numbers with keys from -2^32 downward."""
        numbers = {**self.numbers, **(others or {})}
        return tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                np.fromiter(numbers, np.int64), np.fromiter(numbers.values(), np.int32)
            ),
            default_value=0,
        )


def match(table: tf.lookup.StaticHashTable, characters: tf.Tensor, longest: int) -> tf.Tensor:
    """Finds all strings of a table in a text.

    Args:
        table: The numbers.
        characters: The code points of the text, (C,).
        longest: W, the number of characters of the longest string.

    Returns:
        The number of the string of `n` characters that ends at character `e`, at `[e, W - n]`; 0
        if there is none. (C, W)
    """
    # Each step below drops the first `size` rows.
    before = 2 ** (longest - 1).bit_length() - 1
    keys = -1 - tf.cast(characters, tf.int64)
    found = table.lookup(tf.pad(keys, [[before, 0]]))[:, None]
    found = tf.maximum(found, UNKNOWN)
    size = 1
    while size < longest:
        # The strings that end `size` characters earlier, and the last `size` characters here.
        first, second = found[:-size, size - longest :], found[size:]
        keys = tf.cast(first, tf.int64) * 2**_KEY_BITS + tf.cast(second[:, :1], tf.int64)
        found = tf.concat([table.lookup(keys), second], 1)
        size *= 2
    return found
