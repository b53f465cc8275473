"""Normalises texts inside a TensorFlow graph, as the vocabulary's `Normalizer` does in Python.

Core operations know no Unicode forms. Most texts need none: one pattern finds that out, and only
other batches take the way below.

1. **Decompose.** Each character is replaced by its full decomposition.
2. **Order.** Marks that follow a character are sorted by their combining class.
3. **Compose.** From left to right, each mark is joined to the character before it where Unicode has
   both in one. All runs of characters that can be joined advance at once, by one character a step.

Shape letters: B texts, N characters, M characters after decomposition, R runs.

Reference:
    The Unicode Consortium, Unicode Standard Annex #15, "Unicode Normalization Forms".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from keras_addnorm.data.characters import IDLE_JOINERS
from keras_addnorm.data.normalization import REPLACEMENT, Normalizer
from keras_addnorm.serving import unicode_tables as unicode
from keras_addnorm.serving.graph_charsmap import GraphCharsmap
from keras_addnorm.serving.ragged_characters import (
    char_class,
    escaped,
    expand,
    look_up_pages,
    row_ids,
    to_characters,
    to_texts,
    valid_utf8,
)

_CLASS_BITS = 8
_IS_SECOND = 1 << _CLASS_BITS
_PAIR_BITS = 32


class GraphNormalizer:
    """A `Normalizer` inside a TensorFlow graph.

    Args:
        normalizer: What a vocabulary expects.
    """

    def __init__(self, normalizer: Normalizer) -> None:
        self._marks = normalizer.marks
        self._unchanged = _pattern_of_unchanged_texts(normalizer)
        self._spaces = f"[{char_class(unicode.ranges(unicode.spaces(normalizer)))}]"
        self._dropped = char_class(unicode.ranges(unicode.dropped(normalizer)))
        self._drops_idle_joiners = normalizer.drops_idle_joiners
        self._composer = None if normalizer.rule.form is None else _Composer(normalizer)
        charsmap = normalizer.charsmap
        self._charsmap = None if charsmap is None else GraphCharsmap(charsmap)

    @property
    def numbers(self) -> Mapping[int, int]:
        """What this looks up in the tokenizer's table: keys from -2^32 downward, and values."""
        return {} if self._composer is None else self._composer.numbers

    @property
    def tables(self) -> list[tf.lookup.StaticHashTable]:
        """Lookup tables of its own."""
        return [] if self._charsmap is None else [self._charsmap.table]

    def __call__(self, texts: tf.Tensor, table: tf.lookup.StaticHashTable) -> tf.Tensor:
        """Normalises texts, (B,), up to runs of ASCII white space; `table` holds `numbers`."""
        if self._marks:
            texts = valid_utf8(texts)
            looked_for = "|".join(map(escaped, [*self._marks.values(), *self._marks]))
            there = tf.strings.regex_full_match(texts, f"(?s).*(?:{looked_for}).*")
            texts = _if_any(there, texts, self._set_symbols_aside)
        if self._charsmap is not None:
            texts = self._charsmap(texts)
        return self._if_changed(texts, lambda texts: self._with_plain_spaces(texts, table))

    def _if_changed(self, texts: tf.Tensor, change: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        changed = ~tf.strings.regex_full_match(texts, self._unchanged)
        return _if_any(changed, texts, change)

    def _with_plain_spaces(self, texts: tf.Tensor, table: tf.lookup.StaticHashTable) -> tf.Tensor:
        """Most texts that need something need no more than this."""
        texts = tf.strings.regex_replace(texts, self._spaces, " ")
        return self._if_changed(texts, lambda texts: self._normalize(texts, table))

    def with_symbols(self, texts: tf.Tensor) -> tf.Tensor:
        """Puts the symbols back in the place of their private characters."""
        for symbol, mark in self._marks.items():
            # RE2 reads a backslash in what it puts in.
            there = symbol.replace("\\", "\\\\")
            texts = tf.strings.regex_replace(texts, escaped(mark), there)
        return texts

    def _set_symbols_aside(self, texts: tf.Tensor) -> tf.Tensor:
        marks = "|".join(map(escaped, self._marks.values()))
        texts = tf.strings.regex_replace(texts, marks, REPLACEMENT)
        for symbol, mark in self._marks.items():
            texts = tf.strings.regex_replace(texts, escaped(symbol), mark)
        return texts

    def _normalize(self, texts: tf.Tensor, table: tf.lookup.StaticHashTable) -> tf.Tensor:
        texts = valid_utf8(texts)
        if self._drops_idle_joiners:
            texts = tf.strings.regex_replace(texts, IDLE_JOINERS, r"\1")
        if self._dropped:
            texts = tf.strings.regex_replace(texts, f"[{self._dropped}]", "")
        return texts if self._composer is None else self._composer(texts, table)


def _if_any(
    condition: tf.Tensor, texts: tf.Tensor, change: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    return tf.cond(tf.reduce_any(condition), lambda: change(texts), lambda: tf.identity(texts))


def _pattern_of_unchanged_texts(normalizer: Normalizer) -> str:
    """A pattern of texts that need no work: no mark, or one alone, after other characters."""
    plain = char_class(unicode.unchanged_ranges(normalizer, of_marks=False))
    marks = char_class(unicode.unchanged_ranges(normalizer, of_marks=True))
    return f"(?:[{plain}][{marks}]?)*" if marks else f"[{plain}]*"


class _Composer:
    """Brings texts into a composed form, NFC or NFKC.

    Args:
        normalizer: What a vocabulary expects.
    """

    def __init__(self, normalizer: Normalizer) -> None:
        composition = unicode.composition()
        decompositions = unicode.decompositions(normalizer)
        # The number of each character's decomposition; 0 is the character itself.
        self._number = unicode.Pages.of(
            {code: number for number, code in enumerate(decompositions, 1)}
        )
        sizes = [1, *map(len, decompositions.values())]
        self._sizes = np.array(sizes, np.int32)
        self._starts = np.cumsum([0, *sizes[:-1]], dtype=np.int32)
        parts = map(ord, "".join(["?", *decompositions.values()]))
        self._parts = np.fromiter(parts, np.int32)
        properties = dict(composition.classes)
        for code in unicode.second_characters():
            properties[code] = properties.get(code, 0) | _IS_SECOND
        self._properties = unicode.Pages.of(properties)
        self.numbers = {
            -(first * 2**_PAIR_BITS + second): composed
            for (first, second), composed in composition.pairs.items()
        }

    def __call__(self, texts: tf.Tensor, table: tf.lookup.StaticHashTable) -> tf.Tensor:
        """Normalises valid texts, (B,)."""
        characters, row_splits = to_characters(texts)  # (N,), (B + 1,)
        characters, row_splits = self._decompose(characters, row_splits)  # (M,), (B + 1,)
        row = row_ids(row_splits, tf.size(characters))
        begins_text = tf.concat([[True], tf.not_equal(row[1:], row[:-1])], 0)[: tf.size(row)]
        properties = look_up_pages(self._properties, characters)
        characters, properties = self._order(characters, properties, begins_text)
        characters, stays = self._compose(characters, properties, begins_text, table)
        kept = tf.concat([[0], tf.cumsum(tf.cast(stays, tf.int64))], 0)
        return to_texts(tf.boolean_mask(characters, stays), tf.gather(kept, row_splits))

    def _decompose(
        self, characters: tf.Tensor, row_splits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        number = look_up_pages(self._number, characters)
        origin, place, row_splits = expand(tf.gather(tf.constant(self._sizes), number), row_splits)
        number = tf.gather(number, origin)
        part = tf.gather(tf.constant(self._starts), number) + place
        part = tf.gather(tf.constant(self._parts), part)
        return tf.where(tf.equal(number, 0), tf.gather(characters, origin), part), row_splits

    def _order(
        self, characters: tf.Tensor, properties: tf.Tensor, begins_text: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Sorts the marks after each character by their combining classes."""
        combining_class = self._class(properties)
        group = tf.cumsum(tf.cast(tf.equal(combining_class, 0) | begins_text, tf.int64))
        key = group * _IS_SECOND + tf.cast(combining_class, tf.int64)
        order = tf.argsort(key, stable=True)
        return tf.gather(characters, order), tf.gather(properties, order)

    @staticmethod
    def _class(properties: tf.Tensor) -> tf.Tensor:
        return tf.bitwise.bitwise_and(properties, _IS_SECOND - 1)

    def _compose(
        self,
        characters: tf.Tensor,
        properties: tf.Tensor,
        begins_text: tf.Tensor,
        table: tf.lookup.StaticHashTable,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Joins characters: what comes out at each place, (M,), and whether the place stays."""
        combining_class = self._class(properties)
        # Before a place where a run begins nothing can be joined to what comes there.
        begins_run = begins_text | tf.equal(properties, 0)
        starts = tf.cast(tf.where(begins_run)[:, 0], tf.int32)  # (R,)
        sizes = tf.concat([starts[1:], [tf.size(characters)]], 0)[: tf.size(starts)] - starts
        starts = tf.boolean_mask(starts, sizes > 1)
        sizes = tf.boolean_mask(sizes, sizes > 1)
        longest = tf.reduce_max(tf.concat([sizes, [0]], 0))

        def step(
            index: tf.Tensor,
            base: tf.Tensor,
            before: tf.Tensor,
            characters: tf.Tensor,
            stays: tf.Tensor,
        ) -> tuple[tf.Tensor, ...]:
            """Takes the next character of each run.

            Args:
                index: Its place in the run.
                base: The place of the last character of class 0, (R,); -1 before there is one.
                before: The class of the last mark after it that was not joined, (R,).
                characters: What comes out at each place so far, (M,).
                stays: Whether the place stays so far, (M,).
            """
            is_there = index < sizes
            place = tf.where(is_there, starts + index, 0)
            character, mark_class = tf.gather(characters, place), tf.gather(combining_class, place)
            first = tf.gather(characters, tf.maximum(base, 0))
            joined = _joined(first, character, table)
            is_blocked = tf.not_equal(before, 0) & (before >= mark_class)
            joins = is_there & (base >= 0) & ~is_blocked & (joined > 0)
            where = tf.boolean_mask(base, joins)[:, None]
            characters = tf.tensor_scatter_nd_update(
                characters, where, tf.boolean_mask(joined, joins)
            )
            gone = tf.boolean_mask(place, joins)[:, None]
            stays = tf.tensor_scatter_nd_update(stays, gone, tf.zeros_like(gone[:, 0], tf.bool))
            is_new_base = is_there & ~joins & tf.equal(mark_class, 0)
            base = tf.where(is_new_base, place, base)
            before = tf.where(is_there & ~joins, mark_class, before)
            return index + 1, base, before, characters, stays

        first_class = tf.gather(combining_class, starts)
        *_, characters, stays = tf.while_loop(
            lambda index, *_: index < longest,
            step,
            (
                tf.constant(1),
                tf.where(tf.equal(first_class, 0), starts, -1),
                first_class,
                characters,
                tf.ones_like(characters, tf.bool),
            ),
            name="compose",
        )
        return characters, stays


def _joined(first: tf.Tensor, second: tf.Tensor, table: tf.lookup.StaticHashTable) -> tf.Tensor:
    """The character that two become; 0 if there is none."""
    leading, vowel = first - unicode.FIRST_LEADING, second - unicode.FIRST_VOWEL
    is_leading = (leading >= 0) & (leading < unicode.NUM_LEADING)
    is_vowel = (vowel >= 0) & (vowel < unicode.NUM_VOWELS)
    syllable, trailing = first - unicode.FIRST_SYLLABLE, second - unicode.BEFORE_TRAILING
    is_open = (
        (syllable >= 0)
        & (first <= unicode.LAST_SYLLABLE)
        & tf.equal(syllable % unicode.NUM_TRAILING, 0)
    )
    is_trailing = (trailing > 0) & (trailing < unicode.NUM_TRAILING)
    number = leading * unicode.NUM_VOWELS + vowel
    with_vowel = unicode.FIRST_SYLLABLE + number * unicode.NUM_TRAILING
    key = -(tf.cast(first, tf.int64) * 2**_PAIR_BITS + tf.cast(second, tf.int64))
    return tf.where(
        is_leading & is_vowel,
        with_vowel,
        tf.where(is_open & is_trailing, first + trailing, table.lookup(key)),
    )
