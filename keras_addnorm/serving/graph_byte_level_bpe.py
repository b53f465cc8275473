"""Byte-level BPE inside a TensorFlow graph.

`ByteLevelBPETokenizer` divides texts with a pattern that looks ahead, which TensorFlow's patterns
cannot. Where words begin follows from the classes of neighbouring characters as well: letters,
numbers, white space and others.

Shape letters: B texts, N characters, K words, U distinct words, C bytes of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_addnorm.data import ByteLevelBPETokenizer, byte_alphabet
from keras_addnorm.data.byte_level_bpe import ENDINGS, SPACES, word_classes
from keras_addnorm.data.long_words import LONGEST_WORD
from keras_addnorm.serving import unicode_tables as unicode
from keras_addnorm.serving.graph_bpe import NEVER, look_up, merge
from keras_addnorm.serving.graph_vocabulary import GraphVocabulary
from keras_addnorm.serving.ragged_characters import (
    look_up_pages,
    row_ids,
    to_characters,
    to_texts,
    valid_utf8,
)
from keras_addnorm.serving.string_numbers import StringNumbers, match

_OTHER, _LETTER, _NUMBER, _SPACE = range(4)
_PAIR_BITS = 32


class GraphByteLevelBPETokenizer(GraphVocabulary):
    """A `ByteLevelBPETokenizer` inside a TensorFlow graph. Invalid UTF-8 becomes U+FFFD.

    Args:
        tokenizer: The tokenizer.
        name: Name of the module.
    """

    def __init__(self, tokenizer: ByteLevelBPETokenizer, name: str | None = None) -> None:
        super().__init__(tokenizer, name)
        numbers = StringNumbers()
        ids: dict[int, int] = {}
        for token, piece in enumerate(tokenizer.pieces):
            if piece.type == "normal":
                ids[numbers.add(piece.text)] = token
        pairs = [(numbers.add(first), numbers.add(second)) for first, second in tokenizer.merges]
        self._ids = np.full(len(numbers.texts), tokenizer.unknown_id, np.int32)
        self._ids[list(ids)] = list(ids.values())
        self._longest = int(numbers.lengths.max())
        self._table = numbers.table()
        # The rank of each pair of strings, from 1; 0 is none.
        ranks = {0: 0}
        for rank, (first, second) in enumerate(pairs, 1):
            ranks[first << _PAIR_BITS | second] = rank
        self._ranks = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                np.fromiter(ranks, np.int64), np.fromiter(ranks.values(), np.int32)
            ),
            default_value=0,
        )
        self.tables = [*self.added_tables, self._table, self._ranks]
        self._at_once = np.array([False, *_all_at_once(tokenizer.merges)])
        self._alphabet = np.array([ord(character) for character in byte_alphabet()], np.int32)
        classes = dict.fromkeys(map(ord, _all_spaces()), _SPACE)
        for name_of, number in (("L", _LETTER), ("N", _NUMBER)):
            for first, last in word_classes()[name_of]:
                classes.update(dict.fromkeys(range(first, last + 1), number))
        self._classes = unicode.Pages.of(classes)

    def _normalize(self, texts: tf.Tensor) -> tf.Tensor:
        return valid_utf8(texts)

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        characters, row_splits = to_characters(valid_utf8(texts))
        begins = self._begins_word(characters, row_splits)
        begins = _with_parts(begins)
        starts = tf.where(begins)[:, 0]  # (K,)
        ends = tf.concat([starts, tf.shape(characters, tf.int64)], 0)
        distinct, index = tf.unique(to_texts(characters, ends))
        tokens = tf.gather(self._tokenize_words(distinct), index)
        words_before = tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int64))], 0)
        row_splits = tf.gather(tokens.row_splits, tf.gather(words_before, row_splits))
        return tf.RaggedTensor.from_row_splits(tokens.values, row_splits, validate=False)

    def _begins_word(self, characters: tf.Tensor, row_splits: tf.Tensor) -> tf.Tensor:
        """Whether a word begins at each character, (N,)."""
        size = tf.size(characters)
        row = row_ids(row_splits, size)
        begins_text = tf.concat([[True], tf.not_equal(row[1:], row[:-1])], 0)[:size]
        ends_text = tf.concat([begins_text[1:], [True]], 0)[:size]
        kind = look_up_pages(self._classes, characters)
        before = _shifted(kind, 1, _OTHER)
        is_space, was_space = tf.equal(kind, _SPACE), tf.equal(before, _SPACE)
        is_blank = tf.equal(characters, ord(" "))
        was_blank = _shifted(is_blank, 1, False)
        goes_on = ~ends_text & ~tf.equal(_shifted(kind, -1, _OTHER), _SPACE)
        # The last space of a run stands before the next word; other white space is a word.
        in_spaces = tf.where(was_space, goes_on, True)
        elsewhere = tf.where(was_space, ~was_blank, tf.not_equal(kind, before))
        begins = begins_text | tf.where(is_space, in_spaces, elsewhere)
        # An English ending stands alone, unless other characters, or a space, stand before it.
        can_end = begins_text | (tf.not_equal(before, _OTHER) & ~was_blank)
        for ending in sorted(ENDINGS, key=len):
            found = can_end & self._spells(ending, characters, row)
            inside = [_shifted(found, place, False) for place in range(1, len(ending))]
            for part in inside:
                begins &= ~part
            begins |= found | (_shifted(found, len(ending), False))
        return begins | begins_text

    @staticmethod
    def _spells(text: str, characters: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """Whether a text stands at each character, in one row."""
        found = tf.equal(characters, ord(text[0]))
        for place, character in enumerate(text[1:], 1):
            there = tf.equal(_shifted(characters, -place, -1), ord(character))
            found &= there & tf.equal(_shifted(row, -place, -1), row)
        return found

    def _tokenize_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Merges the bytes of distinct words, (U,)."""
        values = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        characters = tf.gather(tf.constant(self._alphabet), tf.cast(values, tf.int32))  # (C,)
        ends = tf.cumsum(tf.cast(tf.strings.length(words), tf.int64))
        splits = tf.concat([[0], ends], 0)
        matches = match(self._table, characters, self._longest)
        word = row_ids(splits, tf.size(characters)) - 1

        def merges(last: tf.Tensor, length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            number = tf.cast(look_up(matches, last, length), tf.int64)
            pair = tf.bitwise.left_shift(number[:-1], tf.constant(_PAIR_BITS, tf.int64))
            rank = self._ranks.lookup(pair + number[1:])
            return tf.where(rank > 0, rank, NEVER), tf.gather(tf.constant(self._at_once), rank)

        last, length = merge(word, merges)
        ids = tf.gather(tf.constant(self._ids), look_up(matches, last, length))
        counts = tf.math.segment_sum(tf.ones_like(last, tf.int64), tf.gather(word, last))
        # Each word has a token.
        return tf.RaggedTensor.from_row_lengths(ids, counts, validate=False)


def _shifted(values: tf.Tensor, by: int, otherwise: int | bool) -> tf.Tensor:
    """The values `by` places further on; `otherwise` where none comes."""
    size = tf.minimum(abs(by), tf.size(values))
    new = tf.fill(size[None], tf.constant(otherwise, values.dtype))
    kept = values[: tf.size(values) - size] if by > 0 else values[size:]
    return tf.concat([new, kept] if by > 0 else [kept, new], 0)


def _with_parts(begins: tf.Tensor) -> tf.Tensor:
    """Whether a word or a part of a long one begins at each character, (N,)."""
    starts = tf.where(begins)[:, 0]
    size = tf.size(begins, tf.int64)
    ends = tf.concat([starts, [size]], 0)[1:]

    def divided() -> tf.Tensor:
        place = tf.range(size) - tf.gather(starts, tf.cumsum(tf.cast(begins, tf.int32)) - 1)
        return tf.equal(place % LONGEST_WORD, 0)

    longest = tf.reduce_max(ends - starts)
    return tf.cond(longest > LONGEST_WORD, divided, lambda: tf.identity(begins))


def _all_spaces() -> str:
    """All characters of the class `SPACES`."""
    first, last = SPACES.split("-")
    between = map(chr, range(ord(first[-1]) + 1, ord(last[0])))
    return first + "".join(between) + last


def _all_at_once(merges: Sequence[tuple[str, str]]) -> list[bool]:
    """Whether all merges of each pair may be done at once.

    Unless one makes a pair of a better rank possible, which would come next: one with what it
    becomes.
    """
    best: dict[str, int] = {}
    for rank, pair in enumerate(merges):
        for part in pair:
            best.setdefault(part, rank)
    return [
        best.get(first + second, len(merges)) > rank for rank, (first, second) in enumerate(merges)
    ]
