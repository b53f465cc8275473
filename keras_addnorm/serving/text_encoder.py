"""Texts to matrices of token ids, inside the graph of an export."""

from __future__ import annotations

import tensorflow as tf

from keras_addnorm.data import TokenizerPair
from keras_addnorm.decoding import Splitting
from keras_addnorm.serving.graph_segments import GraphSplitter
from keras_addnorm.serving.graph_tokenizers import graph_tokenizer_of

TEXTS = tf.TensorSpec([None], tf.string, "texts")


class TextEncoder:
    """Encodes texts as padded rows of ids, with functions that are traced once.

    It is no `tf.Module`: the functions are saved as parts of the signatures that call them.

    Args:
        tokenizers: The tokenizers.
        max_source_tokens: Longer sources are split, or cut where a row is one text.
        max_target_tokens: Longer targets are cut.
        splitting: How sources are split.
    """

    def __init__(
        self,
        tokenizers: TokenizerPair,
        max_source_tokens: int,
        max_target_tokens: int,
        splitting: Splitting,
    ) -> None:
        self.source = graph_tokenizer_of(tokenizers.source)
        self.target = self.source if tokenizers.is_joint else graph_tokenizer_of(tokenizers.target)
        self._pad_id, self._end_id = tokenizers.target.pad_id, tokenizers.target.end_id
        self._max_source_tokens = max_source_tokens
        self._max_target_tokens = max_target_tokens
        splitter = GraphSplitter(tokenizers.source, self.source, splitting, max_source_tokens)
        self.segments = tf.function(splitter, [TEXTS], autograph=False)
        self.source_ids = tf.function(self._source_ids, [TEXTS], autograph=False)
        self.target_ids = tf.function(self._target_ids, [TEXTS], autograph=False)

    @property
    def tables(self) -> list[tf.lookup.StaticHashTable]:
        """The lookup tables of both sides, without duplicates."""
        return list(dict.fromkeys([*self.source.tables, *self.target.tables]))

    def _source_ids(self, texts: tf.Tensor) -> tf.Tensor:
        """The ids of whole texts, (B, S), which are cut; the rows of blank texts are padding."""
        return self.row_ids(self.source.tokenize(texts))

    def row_ids(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        """The ids that the encoder reads of sources that are tokens, (R, S)."""
        lengths = tf.minimum(tokens.row_lengths(), self._max_source_tokens)
        return self._with_ends(tokens, lengths, tf.where(lengths > 0, lengths, -1))

    def _target_ids(self, texts: tf.Tensor) -> tf.Tensor:
        """The ids that the decoder must predict, (B, T)."""
        tokens = self.target.tokenize(texts)
        lengths = tf.minimum(tokens.row_lengths(), self._max_target_tokens)
        return self._with_ends(tokens, lengths, lengths)

    def _with_ends(self, tokens: tf.RaggedTensor, lengths: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Cuts rows to their lengths and puts the end id into the columns `ends`."""
        # The encoder needs at least one column, even without a text.
        width = tf.maximum(tf.reduce_max(lengths), 0) + 1
        rows = tokens.to_tensor(self._pad_id, shape=tf.stack([-1, width]))
        return tf.where(tf.equal(tf.range(width), ends[:, None]), self._end_id, rows)
