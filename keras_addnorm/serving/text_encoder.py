"""Texts to matrices of token ids, inside the graph of an export."""

from __future__ import annotations

import tensorflow as tf

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import TokenizerPair
from keras_addnorm.decoding import Splitting
from keras_addnorm.serving.graph_segments import GraphSegments, GraphSplitter, text_of_rows
from keras_addnorm.serving.graph_text_format import GraphTextFormat, Languages
from keras_addnorm.serving.graph_tokenizers import graph_tokenizer_of
from keras_addnorm.serving.ragged_characters import meaningful

TEXTS = tf.TensorSpec([None], tf.string, "texts")


class TextEncoder:
    """Encodes texts as padded rows of ids, with functions that are traced once.

    It is no `tf.Module`: the functions are saved as parts of the signatures that call them.

    Args:
        tokenizers: The tokenizers.
        max_source_length: Longer sources are split, or cut where a row is one text.
        max_target_length: Longer targets are cut.
        splitting: How sources are split.
    """

    def __init__(
        self,
        tokenizers: TokenizerPair,
        max_source_length: int,
        max_target_length: int,
        splitting: Splitting,
    ) -> None:
        self.source = graph_tokenizer_of(tokenizers.source)
        self.target = self.source if tokenizers.is_joint else graph_tokenizer_of(tokenizers.target)
        self.text_format = GraphTextFormat(tokenizers)
        self._pad_id, self._end_id = tokenizers.target.pad_id, tokenizers.target.end_id
        self._longest_source = self.text_format.longest_source(max_source_length)
        self._longest_target = max_target_length - 1 - self.text_format.target_length
        if self._longest_target < 0:
            raise ArgumentError(
                f"Targets begin with {self.text_format.target_length} tokens and end with one.",
                "a `max_length` above that",
                value=max_target_length,
            )
        splitter = GraphSplitter(tokenizers.source, self.source, splitting, self._longest_source)
        self._segments = tf.function(splitter, [TEXTS], autograph=False)

    @property
    def tables(self) -> list[tf.lookup.StaticHashTable]:
        """The lookup tables of both sides, without duplicates."""
        tables = [*self.source.tables, *self.target.tables, *self.text_format.tables]
        return list(dict.fromkeys(tables))

    def segments(self, texts: tf.Tensor, languages: Languages) -> tuple[GraphSegments, tf.Tensor]:
        """Splits texts, (B,), into R segments; returns them, and the ids that are read, (R, S)."""
        # Before texts are split into sentences; the tokenizer does it for itself.
        texts = meaningful(texts)
        if self.text_format.is_plain:
            segments = self._segments(texts)
            return segments, self._plain_rows(segments.tokens)
        prefix, texts = self.text_format.take_leading(texts, languages)
        segments = self._segments(texts)
        text = text_of_rows(segments.first_rows)
        suffix = self.text_format.source_suffix(languages, tf.size(texts))
        rows = self._rows(segments.tokens, tf.gather(prefix, text), tf.gather(suffix, text))
        return segments, rows

    def source_ids(self, texts: tf.Tensor, languages: Languages) -> tf.Tensor:
        """The ids of whole texts, (B, S), which are cut; the rows of blank texts are padding."""
        if self.text_format.is_plain:
            return self._plain_rows(self.source.tokenize_bare(texts))
        prefix, texts = self.text_format.take_leading(meaningful(texts), languages)
        suffix = self.text_format.source_suffix(languages, tf.size(texts))
        return self._rows(self.source.tokenize_bare(texts), prefix, suffix)

    def _plain_rows(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        lengths = self.source.cut_lengths(tokens, self._longest_source)
        return self._with_ends(tokens, lengths, tf.where(lengths > 0, lengths, -1))

    def _rows(
        self, tokens: tf.RaggedTensor, prefix: tf.RaggedTensor, suffix: tf.Tensor
    ) -> tf.Tensor:
        """The ids of sources with what stands around their tokens; padding if there are none."""
        lengths = self.source.cut_lengths(tokens, self._longest_source)
        tokens = tf.RaggedTensor.from_tensor(tokens.to_tensor(), lengths)
        ids = tf.concat([prefix, tokens, tf.RaggedTensor.from_tensor(suffix)], 1)
        # The encoder needs at least one column, even without a text.
        width = tf.maximum(ids.bounding_shape(1), 1)
        ids = ids.to_tensor(self._pad_id, shape=tf.stack([-1, width]))
        return tf.where(tokens.row_lengths()[:, None] > 0, ids, self._pad_id)

    def target_ids(self, texts: tf.Tensor, languages: Languages) -> tf.Tensor:
        """The ids that the decoder must predict, (B, T)."""
        tokens = self.target.tokenize_bare(texts)
        lengths = self.target.cut_lengths(tokens, self._longest_target)
        rows = self._with_ends(tokens, lengths, lengths)
        if not self.text_format.target_length:
            return rows
        return tf.concat([self.target_prefix(languages, tf.size(texts)), rows], 1)

    def target_prefix(self, languages: Languages, count: tf.Tensor) -> tf.Tensor:
        """The ids that targets begin with, (count, P)."""
        return self.text_format.target_prefix(languages, count)

    def _with_ends(self, tokens: tf.RaggedTensor, lengths: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Cuts rows to their lengths and puts the end id into the columns `ends`."""
        # The encoder needs at least one column, even without a text.
        width = tf.maximum(tf.reduce_max(lengths), 0) + 1
        rows = tokens.to_tensor(self._pad_id, shape=tf.stack([-1, width]))
        places = tf.range(width)
        # A row that is cut at a character may be shorter than the others of its length.
        rows = tf.where(places < lengths[:, None], rows, self._pad_id)
        return tf.where(tf.equal(places, ends[:, None]), self._end_id, rows)
