"""What tokenizers of all kinds do inside a TensorFlow graph."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import tensorflow as tf

from keras_addnorm.data import BaseTokenizer
from keras_addnorm.decoding.sentence_rules import LONGEST_CHARACTER, WHITE_SPACE_CLASS
from keras_addnorm.serving.graph_added_tokens import GraphCutter, rows_of_one
from keras_addnorm.serving.ragged_characters import meaningful, valid_utf8

TEXTS = tf.TensorSpec([None], tf.string)
_IDS = tf.TensorSpec([None, None], tf.int32)
SPACE_AT_THE_END = f"{WHITE_SPACE_CLASS}+$"
OUTER_SPACE = f"^{WHITE_SPACE_CLASS}+|{SPACE_AT_THE_END}"

_Method = TypeVar("_Method", bound=Callable[..., Any])


def traced(spec: tf.TensorSpec) -> Callable[[_Method], _Method]:
    """Decorates a method of one tensor, of this spec: it is traced once for each object.

    `tf.function` alone holds the object weakly. In `GraphTokenizer(tokenizer).tokenize(texts)`
    nothing else would hold it while the function runs.
    """

    def decorated(method: _Method) -> _Method:
        function = tf.function(method, input_signature=[spec], autograph=False)

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return function.__get__(self, type(self))(*args, **kwargs)

        return cast(_Method, call)

    return decorated


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
        self._keeps_outer_space = tokenizer.keeps_outer_space
        self._is_inside_character = np.zeros(tokenizer.vocabulary_size, bool)
        self._is_inside_character[list(tokenizer.ids_inside_characters)] = True
        self._added = GraphCutter(tokenizer) if tokenizer.added else None
        self._surfaces = np.array(tokenizer.surface_bytes, dtype=object)
        self._pieces = np.array([piece.text for piece in tokenizer.pieces], dtype=object)

    @property
    def added_tables(self) -> list[tf.lookup.StaticHashTable]:
        """The lookup tables of the added tokens."""
        return [] if self._added is None else self._added.tables

    @abc.abstractmethod
    def _normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Brings texts, (B,), into the form in which they are split."""

    @abc.abstractmethod
    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts, (B,), into ids, (B, tokens of each)."""

    def _prepare(self, texts: tf.Tensor) -> tf.Tensor:
        """Does to texts between added tokens what is done before others are looked for."""
        return texts

    def _tokenize_prepared(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts into ids that were prepared."""
        return self._tokenize(texts)

    def _tokenize_between(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts, (B,), with added tokens in them."""
        assert self._added is not None
        parts = self._added(valid_utf8(texts), self._prepare)
        tokens = self._tokenize_prepared(tf.where(parts.token < 0, parts.text, ""))
        space = self._added.space_id
        if space is not None:
            spaces = rows_of_one(tf.fill(tf.shape(parts.token), space), parts.ends_with_space)
            tokens = tf.concat([tokens, spaces], 1)
        tokens = tf.concat([tokens, rows_of_one(parts.token, parts.token >= 0)], 1)
        row_splits = tf.gather(tokens.row_splits, parts.row_splits)
        return tf.RaggedTensor.from_row_splits(tokens.values, row_splits, validate=False)

    @traced(TEXTS)
    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Brings texts into the form in which they are split."""
        return self._normalize(meaningful(texts))

    @traced(TEXTS)
    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts into the ids of their pieces, without start or end."""
        texts = meaningful(texts)
        return self._tokenize(texts) if self._added is None else self._tokenize_between(texts)

    def tokenize_bare(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts without the white space at their ends, which no sentence has."""
        if self._keeps_outer_space:
            texts = tf.strings.regex_replace(meaningful(texts), OUTER_SPACE, "")
        return self.tokenize(texts)

    def cut_lengths(self, tokens: tf.RaggedTensor, longest: int) -> tf.Tensor:
        """The lengths, (B,) int64, of rows of ids that are cut off, at a character's end."""
        lengths = tokens.row_lengths()
        kept = tf.minimum(lengths, longest)
        if not self._is_inside_character.any():
            return kept
        starts = tokens.row_starts()
        ends = self.ends_of_characters(tokens.values, starts, starts + kept)
        return tf.where(lengths > longest, ends - starts, kept)

    def ends_of_characters(
        self, values: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> tf.Tensor:
        """Moves ends of rows that go on back to where a character ends, if one ends before."""
        if not self._is_inside_character.any():
            return ends
        # Behind the last one stands no character.
        inside = tf.concat([tf.gather(tf.constant(self._is_inside_character), values), [False]], 0)
        found = ends
        for _ in range(LONGEST_CHARACTER - 1):
            found -= tf.cast(tf.gather(inside, found), tf.int64)
        return tf.where(found > starts, found, ends)

    @traced(_IDS)
    def detokenize(self, ids: tf.Tensor) -> tf.Tensor:
        """Joins the pieces of each row of ids up to the first end id: (B, T) -> (B,)."""
        before_end = tf.equal(tf.cumsum(tf.cast(tf.equal(ids, self._end_id), tf.int32), axis=1), 0)
        surfaces = tf.where(before_end, tf.gather(tf.constant(self._surfaces), ids), "")
        texts = tf.strings.reduce_join(surfaces, 1)
        if self._joins_bytes:
            texts = valid_utf8(texts)
        return tf.strings.regex_replace(texts, "^ +| +$", "")

    @traced(_IDS)
    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the piece of each id as the vocabulary spells it: U+2581 is a space."""
        return tf.where(tf.equal(ids, self._pad_id), "", tf.gather(tf.constant(self._pieces), ids))
