"""Bytes as tokens inside a TensorFlow graph."""

from __future__ import annotations

import tensorflow as tf

from keras_addnorm.data import ByteTokenizer
from keras_addnorm.serving.graph_vocabulary import GraphVocabulary
from keras_addnorm.serving.ragged_characters import valid_utf8


class GraphByteTokenizer(GraphVocabulary):
    """A `ByteTokenizer` inside a TensorFlow graph. Invalid UTF-8 becomes U+FFFD.

    Args:
        tokenizer: The tokenizer.
        name: Name of the module.
    """

    def __init__(self, tokenizer: ByteTokenizer, name: str | None = None) -> None:
        super().__init__(tokenizer, name)
        self.tables = [*self.added_tables]
        self._offset = tokenizer.offset

    def _normalize(self, texts: tf.Tensor) -> tf.Tensor:
        return valid_utf8(texts)

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = valid_utf8(texts)
        whole = tf.strings.reduce_join(texts)
        values = tf.cast(tf.io.decode_raw(whole, tf.uint8), tf.int32) + self._offset
        lengths = tf.cast(tf.strings.length(texts), tf.int64)
        return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
