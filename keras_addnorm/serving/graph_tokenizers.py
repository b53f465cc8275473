"""Which class does in a graph what a tokenizer does in Python, and that of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import BaseTokenizer, ByteLevelBPETokenizer, ByteTokenizer, Tokenizer
from keras_addnorm.serving.graph_byte_level_bpe import GraphByteLevelBPETokenizer
from keras_addnorm.serving.graph_tokenizer import GraphTokenizer
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


_CLASSES: dict[type[BaseTokenizer], Callable[[Any], GraphVocabulary]] = {
    Tokenizer: GraphTokenizer,
    ByteTokenizer: GraphByteTokenizer,
    ByteLevelBPETokenizer: GraphByteLevelBPETokenizer,
}


def graph_tokenizer_of(tokenizer: BaseTokenizer) -> GraphVocabulary:
    """Makes the tokenizer of a graph, with the results of one in Python."""
    if type(tokenizer) not in _CLASSES:
        raise ArgumentError(
            "An export splits texts with TensorFlow's own operations, and does not know this kind "
            "of tokenizer.",
            f"one of {[kind.__name__ for kind in _CLASSES]}",
            "Translate in Python, or export the model without its tokenizer (export_onnx, "
            "export_litert).",
            received=f"a {type(tokenizer).__name__}",
        )
    return _CLASSES[type(tokenizer)](tokenizer)
