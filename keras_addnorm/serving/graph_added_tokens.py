"""Divides texts at added tokens inside a TensorFlow graph, as `Cutter` does in Python.

Shape letters: B texts, P parts of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_addnorm.data import BaseTokenizer
from keras_addnorm.data.added_tokens import SPACES
from keras_addnorm.serving.ragged_characters import lower_bounds, upper_bounds


class Parts(NamedTuple):
    """The parts of texts, P of them.

    Args:
        text: What each of them is, (P,).
        token: The id of an added token, -1 of other parts, (P,).
        ends_with_space: Whether white space at its end is a piece, (P,).
        row_splits: Where the parts of each text begin, (B + 1,).
    """

    text: tf.Tensor
    token: tf.Tensor
    ends_with_space: tf.Tensor
    row_splits: tf.Tensor


class GraphCutter:
    """A `Cutter` inside a TensorFlow graph.

    Args:
        tokenizer: A tokenizer with added tokens.

    Attributes:
        space_id: The id of white space before a token; `None` if it is a part of the text.
        tables: The lookup tables.
    """

    def __init__(self, tokenizer: BaseTokenizer) -> None:
        cutter = tokenizer.cutter
        assert cutter is not None
        self.space_id = tokenizer.id_of_space
        self._patterns = cutter.raw, cutter.normalized
        tokens = cutter.tokens
        self._ids = _table([token.text for token in tokens], [cutter.ids[t.text] for t in tokens])
        self._number = _table([token.text for token in tokens], list(range(len(tokens))))
        self.tables = [self._ids, self._number]
        # The last one is no token.
        self._lstrip = np.array([*(token.lstrip for token in tokens), False])
        self._rstrip = np.array([*(token.rstrip for token in tokens), False])

    def __call__(self, texts: tf.Tensor, prepare: Callable[[tf.Tensor], tf.Tensor]) -> Parts:
        """Divides texts at their added tokens.

        Args:
            texts: Valid texts without NULs, (B,).
            prepare: What is done to the text between tokens.

        Returns:
            The parts.
        """
        raw, normalized = self._patterns
        text, is_token, row_splits = self._split(texts, raw)
        text = tf.where(is_token, text, prepare(tf.where(is_token, "", text)))
        # The tokens among them are kept from what is looked for now.
        inner, is_inner, inner_splits = self._split(tf.where(is_token, "", text), normalized)
        origin = upper_bounds(inner_splits, tf.range(inner_splits[-1])) - 1
        is_token = tf.gather(is_token, origin)
        text = tf.where(is_token, tf.gather(text, origin), inner)
        is_token |= is_inner
        row_splits = tf.gather(inner_splits, row_splits)
        token = tf.where(is_token, self._ids.lookup(text), -1)
        return Parts(text, token, self._ends_with_space(text, is_token, row_splits), row_splits)

    def _split(
        self, texts: tf.Tensor, pattern: str | None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Parts of texts, (P,), whether each is a token, and where those of each text begin."""
        count = tf.size(texts, tf.int64)
        if pattern is None:
            return texts, tf.zeros_like(texts, tf.bool), tf.range(count + 1)
        # No text has a NUL.
        marked = tf.strings.regex_replace(texts, pattern, "\0\\1\0")
        found = tf.raw_ops.StringSplitV2(input=tf.strings.join(["\0", marked]), sep="\0")
        # What is before the NUL that was put in front, so that an empty text has a part, too.
        row, place = tf.unstack(found.indices, axis=1)
        row, place = tf.boolean_mask(row, place > 0), tf.boolean_mask(place, place > 0)
        part = tf.boolean_mask(found.values, found.indices[:, 1] > 0)
        is_token = tf.equal(place % 2, 0)
        row_splits = lower_bounds(row, tf.range(count + 1))
        return self._stripped(part, is_token), is_token, row_splits

    def _stripped(self, text: tf.Tensor, is_token: tf.Tensor) -> tf.Tensor:
        """Leaves white space out that tokens leave out around them."""
        if not self._lstrip.any() and not self._rstrip.any():
            return text
        number = tf.where(is_token, self._number.lookup(text), -1) % len(self._lstrip)
        # Between two texts, and between two tokens, stands something else.
        before = tf.concat([number[1:], tf.fill([1], len(self._lstrip) - 1)], 0)[: tf.size(number)]
        behind = tf.concat([tf.fill([1], len(self._lstrip) - 1), number[:-1]], 0)[: tf.size(number)]
        for pattern, chosen in (
            (f"{SPACES}$", tf.gather(tf.constant(self._lstrip), before)),
            (f"^{SPACES}", tf.gather(tf.constant(self._rstrip), behind)),
        ):
            text = tf.where(chosen & ~is_token, tf.strings.regex_replace(text, pattern, ""), text)
        return text

    def _ends_with_space(
        self, text: tf.Tensor, is_token: tf.Tensor, row_splits: tf.Tensor
    ) -> tf.Tensor:
        """Whether each part ends with white space that the token behind it keeps."""
        if self.space_id is None:
            return tf.zeros_like(is_token)
        number = tf.where(is_token, self._number.lookup(text), -1) % len(self._lstrip)
        keeps = tf.gather(tf.constant([*~self._lstrip[:-1], False]), number)
        keeps = tf.concat([keeps[1:], [False]], 0)[: tf.size(keeps)]
        is_first = tf.tensor_scatter_nd_update(
            tf.zeros_like(is_token), row_splits[:-1, None], tf.ones_like(row_splits[:-1], tf.bool)
        )
        ends = tf.strings.regex_full_match(text, f"(?s).*{SPACES}")
        is_blank = tf.strings.regex_full_match(text, f"{SPACES}")
        return keeps & ~is_token & ends & ~(is_first & is_blank)


def rows_of_one(values: tf.Tensor, there: tf.Tensor) -> tf.RaggedTensor:
    """Rows of one value or none."""
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(values, there), tf.cast(there, tf.int64), validate=False
    )


def _table(texts: Sequence[str], numbers: Sequence[int]) -> tf.lookup.StaticHashTable:
    entries = tf.lookup.KeyValueTensorInitializer(
        np.array([text.encode("utf-8") for text in texts], dtype=object),
        np.array(numbers, np.int32),
        tf.string,
        tf.int32,
    )
    return tf.lookup.StaticHashTable(entries, -1)
