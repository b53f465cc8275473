"""What stands around the tokens of a text, inside the graph of an export.

`keras_addnorm.data.text_format` does the same in Python. Languages are constants of the graph, or
inputs of its signatures: a string for all texts, or one for each.

Shape letters: B texts, P tokens of a prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.data.text_format import END, pieces_of_languages
from keras_addnorm.serving.ragged_characters import escaped

Languages = Mapping[str, tf.Tensor]
"""The languages of texts by "source" and "target", (B,) or (1,); those that are inputs."""

SIDES = ("source", "target")
LANGUAGE_INPUTS = {side: f"{side}_language" for side in SIDES}
"""The names of the languages where they are inputs of a signature."""

_SHOWN = 5


class GraphTextFormat:
    """A `TextFormat` inside a graph.

    Args:
        tokenizers: The tokenizers with their format.

    Attributes:
        source_languages: Which languages are inputs where sources are read.
        target_languages: Which languages are inputs where targets are written.
        is_plain: Whether sources have nothing around them but the end token.
        target_length: Number of tokens that targets begin with.
        longest_source: See `BoundFormat.longest_source`.
        is_prefix_free: Whether these add nothing to the score of a translation.
        example_languages: One language for each input.
    """

    def __init__(self, tokenizers: TokenizerPair) -> None:
        found = tokenizers.text_format
        self._format = found
        self.source_languages = found.source_languages
        self.target_languages = found.target_languages
        names = {
            side: self._names(tokenizers, side)
            for side in SIDES
            if side in (*self.source_languages, *self.target_languages)
        }
        # An example of two languages is one of a translation.
        known = {side: some[min(SIDES.index(side), len(some) - 1)] for side, some in names.items()}
        self.example_languages = known
        # Nothing that is asked below depends on which languages they are.
        bound = (
            tokenizers.with_languages(**known).bound_format if known else tokenizers.bound_format
        )
        self.longest_source = bound.longest_source
        self.is_prefix_free = bound.is_prefix_free
        self.is_plain = bound.is_plain
        self.target_length = len(bound.target_prefix)
        self._text_prefix = np.array([bound.text_prefix], np.int32)
        # Constant pieces are looked up here, others in the graph: those that Python would find.
        read = pieces_of_languages((*found.read_prefix, *found.source_suffix), names)
        written = pieces_of_languages(found.target_prefix, names)
        self._source_pieces = _Pieces(tokenizers.source, read, names)
        self._target_pieces = _Pieces(tokenizers.target, written, names)
        self._leading_pieces = _Pieces(tokenizers.source, self._leading_names(tokenizers.source))
        of_each = self._source_pieces, self._target_pieces, self._leading_pieces
        self.tables = [table for pieces in of_each for table in pieces.tables]

    def _names(self, tokenizers: TokenizerPair, side: str) -> list[str]:
        names = tokenizers.languages(side)
        if not names:
            raise ArgumentError(
                f"An export whose {side} language is an input looks its piece up.",
                "a vocabulary with pieces for languages",
                f"Choose the language: tokenizers.with_languages({side}=...).",
                received=f"the format {self._format}",
            )
        return names

    def _leading_names(self, tokenizer: BaseTokenizer) -> list[str]:
        """The pieces that a text may begin with."""
        if self._format.leading_piece is None:
            return []
        opening, closing = self._format.leading_piece
        shortest = len(opening) + len(closing)
        return [
            piece.text
            for piece in tokenizer.pieces
            if piece.text.startswith(opening)
            and piece.text.endswith(closing)
            and len(piece.text) >= shortest
        ]

    def take_leading(
        self, texts: tf.Tensor, languages: Languages
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The ids before each source, (B, P), and the texts without their leading pieces."""
        count = tf.size(texts)
        if self._format.leading_piece is None:
            ids = self._source_pieces.ids(self._format.read_prefix, languages, count)
            prefix = tf.RaggedTensor.from_tensor(ids, ragged_rank=1)
        else:
            prefix, texts = self._leading(texts, languages)
        task = tf.RaggedTensor.from_tensor(tf.tile(self._text_prefix, tf.stack([count, 1])))
        return tf.concat([prefix, task], 1), texts

    def _leading(self, texts: tf.Tensor, languages: Languages) -> tuple[tf.RaggedTensor, tf.Tensor]:
        opening, closing = map(escaped, self._format.leading_piece or ("", ""))
        # The shortest piece, and what follows it.
        pattern = f"(?s)^({opening}.*?{closing}).*$"
        is_there = tf.strings.regex_full_match(texts, pattern)
        piece = tf.where(is_there, tf.strings.regex_replace(texts, pattern, r"\1"), "")
        rest = tf.strings.substr(texts, tf.strings.length(piece), tf.strings.length(texts))
        rest = tf.where(is_there, rest, texts)
        own = self._leading_pieces.look_up(piece)
        is_one = tf.cast(is_there, tf.int64)
        named = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(own, is_there), is_one, validate=False
        )
        prefix = self._format.read_prefix
        others = tf.size(texts) - tf.reduce_sum(tf.cast(is_there, tf.int32))
        ids = self._source_pieces.ids(prefix, languages, others)
        of_others = tf.RaggedTensor.from_row_lengths(
            tf.reshape(ids, [-1]), (1 - is_one) * len(prefix), validate=False
        )
        return tf.concat([named, of_others], 1), rest

    def source_suffix(self, languages: Languages, count: tf.Tensor) -> tf.Tensor:
        """The ids behind each source, (B, P)."""
        return self._source_pieces.ids(self._format.source_suffix, languages, count)

    def target_prefix(self, languages: Languages, count: tf.Tensor) -> tf.Tensor:
        """The ids that each target begins with, (B, P)."""
        return self._target_pieces.ids(self._format.target_prefix, languages, count)


class _Pieces:
    """Ids of pieces whose names may hold languages.

    Args:
        tokenizer: The vocabulary.
        names: The pieces that are looked up in the graph; those that it lacks are left out.
        languages: The languages that there are, for what is said of others.
    """

    def __init__(
        self,
        tokenizer: BaseTokenizer,
        names: Iterable[str],
        languages: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._languages = languages or {}
        self._ids = tokenizer.ids_of_pieces
        self._end_id = tokenizer.end_id
        self._unknown_id = tokenizer.unknown_id
        found = [name for name in dict.fromkeys(names) if name in self._ids]
        self.tables = []
        if not found:
            return
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(found), tf.constant([self._ids[name] for name in found], tf.int32)
            ),
            default_value=-1,
        )
        self.tables = [self._table]

    def look_up(self, names: tf.Tensor) -> tf.Tensor:
        """The id of each name, unknown if it is none of them."""
        if not self.tables:
            return tf.fill(tf.shape(names), np.int32(self._unknown_id))
        found = self._table.lookup(names)
        return tf.where(found < 0, self._unknown_id, found)

    def ids(self, pieces: Sequence[str], languages: Languages, count: tf.Tensor) -> tf.Tensor:
        """The ids of pieces, (count, number of pieces)."""
        columns = []
        for piece in pieces:
            parts = _filled(piece, languages)
            if piece == END or (len(parts) == 1 and isinstance(parts[0], str)):
                number = self._end_id if piece == END else self._ids[piece]
                columns.append(tf.fill([count], np.int32(number)))
                continue
            found = self._table.lookup(tf.strings.join(parts))
            sides = [side for side in languages if f"{{{side}}}" in piece]
            with tf.control_dependencies([self._require(found, sides, languages)]):
                columns.append(tf.broadcast_to(found, [count]))
        return tf.stack(columns, 1) if columns else tf.zeros(tf.stack([count, 0]), tf.int32)

    def _require(self, found: tf.Tensor, sides: Sequence[str], languages: Languages) -> Any:
        """An operation that fails where a piece was not found; it says what was received."""
        is_missing = found < 0
        said: list[str | tf.Tensor] = []
        for side in sides:
            given = tf.broadcast_to(languages[side], tf.shape(found))
            known = self._languages[side]
            # Without quotes, which TensorFlow would escape.
            said += [
                f"The model does not know a {LANGUAGE_INPUTS[side]}. Expected one of {len(known)}, "
                f"such as {', '.join(known[:_SHOWN])}; received",
                tf.boolean_mask(given, is_missing),
            ]
        return tf.debugging.Assert(~tf.reduce_any(is_missing), said, summarize=_SHOWN)


def _filled(template: str, languages: Languages) -> list[str | tf.Tensor]:
    """The parts of a name or text, with the inputs in the places of languages."""
    parts: list[str | tf.Tensor] = [template]
    for side in SIDES:
        if side not in languages:
            continue
        split: list[str | tf.Tensor] = []
        for part in parts:
            if not isinstance(part, str):
                split.append(part)
                continue
            first, *others = part.split(f"{{{side}}}")
            split.append(first)
            for other in others:
                split += [languages[side], other]
        parts = [part for part in split if not isinstance(part, str) or part]
    return parts
