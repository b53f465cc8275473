"""What stands around the tokens of a text, inside the graph of an export.

`keras_addnorm.data.text_format` does the same in Python. Languages are constants of the graph, or
inputs of its signatures: a string for all texts, or one for each.

Shape letters: B texts, P tokens of a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.data.text_format import END
from keras_addnorm.serving.ragged_characters import escaped

Languages = Mapping[str, tf.Tensor]
"""The languages of texts by "source" and "target", (B,) or (1,); those that are inputs."""

_SIDES = ("source", "target")


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
        known = {
            side: next(iter(self._names(tokenizers, side)), "")
            for side in {*self.source_languages, *self.target_languages}
        }
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
        # Constant pieces are looked up here, others in the graph.
        is_open = bool(known) or found.leading_piece is not None
        self._source_pieces = _Pieces(tokenizers.source, found.leading_piece, is_open)
        self._target_pieces = (
            self._source_pieces
            if tokenizers.is_joint
            else _Pieces(tokenizers.target, None, is_open)
        )
        self.tables = [*self._source_pieces.tables, *self._target_pieces.tables]

    def _names(self, tokenizers: TokenizerPair, side: str) -> list[str]:
        names = tokenizers.languages(side)
        if not names:
            raise ValueError(
                f"An export whose {side} language is an input looks its piece up. Expected a "
                f"vocabulary with pieces for languages; received the format {self._format}. Choose "
                f"the language: tokenizers.with_languages({side}=...)."
            )
        return names

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
        own = self._source_pieces.look_up(piece)
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
        leading_piece: How a piece begins and ends that a text may begin with.
        is_open: Whether pieces are looked up in the graph.
    """

    def __init__(
        self, tokenizer: BaseTokenizer, leading_piece: tuple[str, str] | None, is_open: bool
    ) -> None:
        self._ids = tokenizer.ids_of_pieces
        self._end_id = tokenizer.end_id
        self._unknown_id = tokenizer.unknown_id
        self.tables = []
        if not is_open:
            return
        opening, closing = leading_piece or ("", "")
        names = [
            piece.text
            for piece in tokenizer.pieces
            if piece.type in ("control", "unused")
            or (leading_piece and piece.text.startswith(opening) and piece.text.endswith(closing))
        ]
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(names, tf.string, [len(names)]),
                tf.constant([self._ids[name] for name in names], tf.int32, [len(names)]),
            ),
            default_value=-1,
        )
        self.tables = [self._table]

    def look_up(self, names: tf.Tensor) -> tf.Tensor:
        """The id of each name, unknown if it is none of a language or the like."""
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
            sides = [f"{side}_language" for side in languages if f"{{{side}}}" in piece]
            is_known = tf.debugging.assert_non_negative(
                found, f"The model does not know one of the languages in {' and '.join(sides)}"
            )
            with tf.control_dependencies([is_known]):
                columns.append(tf.broadcast_to(found, [count]))
        return tf.stack(columns, 1) if columns else tf.zeros(tf.stack([count, 0]), tf.int32)


def _filled(template: str, languages: Languages) -> list[str | tf.Tensor]:
    """The parts of a name or text, with the inputs in the places of languages."""
    parts: list[str | tf.Tensor] = [template]
    for side in _SIDES:
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
