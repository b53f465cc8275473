"""What tokenizers of all kinds do inside a TensorFlow graph."""

from __future__ import annotations

import abc

import numpy as np
import tensorflow as tf

from keras_addnorm.data import BaseTokenizer
from keras_addnorm.serving.ragged_characters import valid_utf8

_TEXTS = tf.TensorSpec([None], tf.string)
_IDS = tf.TensorSpec([None, None], tf.int32)


class GraphVocabulary(tf.Module, abc.ABC):
    """A tokenizer inside a TensorFlow graph.

    Args:
        tokenizer: The tokenizer.
        name: Name of the module.

    Attributes:
        tables: The lookup tables, so that a module that is saved owns them.
    """

    tables: list[tf.lookup.StaticHashTable]

    def __init__(self, tokenizer: BaseTokenizer, name: str | None = None) -> None:
        super().__init__(name=name)
        self._end_id = tokenizer.end_id
        self._pad_id = tokenizer.pad_id
        self._joins_bytes = tokenizer.joins_bytes
        self._surfaces = np.array(tokenizer.surface_bytes, dtype=object)
        self._pieces = np.array([piece.text for piece in tokenizer.pieces], dtype=object)

    @abc.abstractmethod
    def _normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Brings texts, (B,), into the form in which they are split."""

    @abc.abstractmethod
    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts, (B,), into ids, (B, tokens of each)."""

    @tf.function(input_signature=[_TEXTS], autograph=False)
    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Brings texts into the form in which they are split.

        Args:
            texts: Strings, of shape (B,).

        Returns:
            The texts.
        """
        return self._normalize(texts)

    @tf.function(input_signature=[_TEXTS], autograph=False)
    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts into the ids of their pieces, without start or end.

        Args:
            texts: Strings, of shape (B,).

        Returns:
            The ids: a ragged tensor (B, tokens of each), int32.
        """
        return self._tokenize(texts)

    @tf.function(input_signature=[_IDS], autograph=False)
    def detokenize(self, ids: tf.Tensor) -> tf.Tensor:
        """Joins the pieces of each row up to the first end id.

        Args:
            ids: Token ids, of shape (B, T); padding and start ids are skipped.

        Returns:
            The texts, of shape (B,), without spaces at their ends.
        """
        before_end = tf.equal(tf.cumsum(tf.cast(tf.equal(ids, self._end_id), tf.int32), axis=1), 0)
        surfaces = tf.where(before_end, tf.gather(tf.constant(self._surfaces), ids), "")
        texts = tf.strings.reduce_join(surfaces, 1)
        if self._joins_bytes:
            texts = valid_utf8(texts)
        return tf.strings.regex_replace(texts, "^ +| +$", "")

    @tf.function(input_signature=[_IDS], autograph=False)
    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the piece of each id as the vocabulary spells it: U+2581 is a space.

        Args:
            ids: Token ids, of shape (B, T).

        Returns:
            The pieces, of shape (B, T); empty strings at padding.
        """
        return tf.where(tf.equal(ids, self._pad_id), "", tf.gather(tf.constant(self._pieces), ids))
