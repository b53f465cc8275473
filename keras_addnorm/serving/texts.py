"""What an exported model does with texts before and after it computes."""

from __future__ import annotations

import tensorflow as tf

from keras_addnorm.data import TokenizerPair
from keras_addnorm.serving.graph_tokenizer import GraphTokenizer

TEXTS = tf.TensorSpec([None], tf.string, "texts")


class Texts:
    """Rows of ids from texts, each function traced once wherever it is called.

    No `tf.Module`: the functions are saved with those that call them, and not by themselves.

    Args:
        tokenizers: The tokenizers.
        max_source_tokens: Longer sources are cut.
        max_target_tokens: So are longer targets.
    """

    def __init__(
        self, tokenizers: TokenizerPair, max_source_tokens: int, max_target_tokens: int
    ) -> None:
        self.source = GraphTokenizer(tokenizers.source)
        self.target = self.source if tokenizers.is_joint else GraphTokenizer(tokenizers.target)
        self._pad_id, self._end_id = tokenizers.target.pad_id, tokenizers.target.end_id
        self._max_source_tokens = max_source_tokens
        self._max_target_tokens = max_target_tokens
        self.source_ids = tf.function(self._source_ids, [TEXTS], autograph=False)
        self.target_ids = tf.function(self._target_ids, [TEXTS], autograph=False)

    @property
    def tables(self) -> list[tf.lookup.StaticHashTable]:
        """The look-up tables, each once."""
        return list(dict.fromkeys([self.source.table, self.target.table]))

    def _source_ids(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the rows that the encoder reads, (B, S); those of blank texts are padding."""
        tokens = self.source.tokenize(texts)[:, : self._max_source_tokens]
        is_filled = tf.cast(tokens.row_lengths() > 0, tf.int64)
        return self._with_ends(tokens, is_filled)

    def _target_ids(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the rows that the decoder is to predict, (B, T)."""
        tokens = self.target.tokenize(texts)[:, : self._max_target_tokens]
        return self._with_ends(tokens, tf.ones_like(tokens.row_lengths()))

    def _with_ends(self, tokens: tf.RaggedTensor, has_end: tf.Tensor) -> tf.Tensor:
        ends = tf.fill([tf.reduce_sum(has_end)], self._end_id)
        ends = tf.RaggedTensor.from_row_lengths(ends, has_end, validate=False)
        rows = tf.concat([tokens, ends], 1).to_tensor(self._pad_id)
        # The encoder wants a column, even if no text has a token.
        missing = tf.maximum(1 - tf.shape(rows)[1], 0)
        return tf.pad(rows, [[0, 0], [0, missing]], constant_values=self._pad_id)
