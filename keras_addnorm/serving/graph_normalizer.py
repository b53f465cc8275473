"""Normalises texts inside a TensorFlow graph, as the vocabulary's `Normalizer` does in Python.

Core operations know no Unicode forms. Most texts need none: one pattern finds that out, and only
other batches take the way below.

1. **Decompose.** Each character is replaced by its full decomposition.
2. **Order.** Marks that follow a character are sorted by their combining class.
3. **Compose.** From left to right, each mark is joined to the character before it where Unicode has
   both in one. All runs of characters that can be joined advance at once, by one character a step.
   Runs are short whatever a text holds: of a hundred thousand marks on one letter, all but a few of
   each combining class are known to stay as they are.

Shape letters: B texts, N characters, M characters after decomposition, P of these that may be
joined, R runs.

Reference:
    The Unicode Consortium, Unicode Standard Annex #15, "Unicode Normalization Forms".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_addnorm.basics.errors import ArgumentError
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
# Beyond all code points: the first of two neighbours, to tell them from a pair that is joined.
_NEIGHBOUR = 1 << 21
_MOST_SYMBOLS = 10_000


class GraphNormalizer:
    """A `Normalizer` inside a TensorFlow graph.

    Args:
        normalizer: What a vocabulary expects.
    """

    def __init__(self, normalizer: Normalizer) -> None:
        if len(normalizer.marks) > _MOST_SYMBOLS:
            raise ArgumentError(
                "In a graph each user-defined symbol is looked for by an operation of its own.",
                f"at most {_MOST_SYMBOLS:,} symbols",
                "Split texts in Python, with the tokenizer itself.",
                received=f"{len(normalizer.marks):,}",
            )
        self._marks = normalizer.marks
        self._outer = normalizer.outer
        self._unchanged = _pattern_of_unchanged_texts(normalizer)
        spaces = char_class(unicode.ranges(unicode.spaces(normalizer)))
        self._spaces = f"[{spaces}]" if spaces else None
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
        return self.finished(self.prepared(texts), table)

    def prepared(self, texts: tf.Tensor) -> tf.Tensor:
        """Sets symbols aside, and applies the table of characters, as `Normalizer.prepared`."""
        if self._marks:
            texts = valid_utf8(texts)
            looked_for = "|".join(map(escaped, [*self._marks.values(), *self._marks]))
            there = tf.strings.regex_full_match(texts, f"(?s).*(?:{looked_for}).*")
            texts = _if_any(there, texts, self._set_symbols_aside)
        return texts if self._charsmap is None else self._charsmap(texts)

    def finished(self, texts: tf.Tensor, table: tf.lookup.StaticHashTable) -> tf.Tensor:
        """Goes on with texts that are prepared, as `Normalizer.finished`."""
        return self._if_changed(texts, lambda texts: self._with_plain_spaces(texts, table))

    def _if_changed(self, texts: tf.Tensor, change: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        changed = ~tf.strings.regex_full_match(texts, self._unchanged)
        return _if_any(changed, texts, change)

    def _with_plain_spaces(self, texts: tf.Tensor, table: tf.lookup.StaticHashTable) -> tf.Tensor:
        """Most texts that need something need no more than this."""
        if self._spaces is None:
            return self._normalize(texts, table)
        texts = tf.strings.regex_replace(texts, self._spaces, " ")
        return self._if_changed(texts, lambda texts: self._normalize(texts, table))

    def without_end(self, texts: tf.Tensor) -> tf.Tensor:
        """Leaves out what a text does not end with, besides white space."""
        if not self._outer.strip():
            return texts
        return tf.strings.regex_replace(texts, f"[\\s{self._outer}]+$", "")

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
            _pair_key(first, second): composed
            for (first, second), composed in composition.pairs.items()
        }
        self.numbers |= {
            _pair_key(before + _NEIGHBOUR, second): 1 for before, second in unicode.neighbours()
        }
        self._most_joined = unicode.most_joined()

    def __call__(self, texts: tf.Tensor, table: tf.lookup.StaticHashTable) -> tf.Tensor:
        """Normalises valid texts, (B,)."""
        characters, row_splits = to_characters(texts)  # (N,), (B + 1,)
        characters, row_splits = self._decompose(characters, row_splits)  # (M,), (B + 1,)
        row = row_ids(row_splits, tf.size(characters))
        begins_text = tf.concat([[True], tf.not_equal(row[1:], row[:-1])], 0)[: tf.size(row)]
        properties = look_up_pages(self._properties, characters)
        order, may_join = self._order(self._class(properties), begins_text)
        characters, properties = tf.gather(characters, order), tf.gather(properties, order)
        places = tf.where(may_join)  # (P, 1)
        composed, stay = self._compose(
            tf.gather_nd(characters, places),
            tf.gather_nd(properties, places),
            tf.gather_nd(begins_text, places),
            table,
        )
        characters = tf.tensor_scatter_nd_update(characters, places, composed)
        stays = tf.tensor_scatter_nd_update(~may_join, places, stay)
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
        self, combining_class: tf.Tensor, begins_text: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Sorts the marks after each character by their combining classes.

        The first mark of a class that is not joined keeps the others of its class from it. Since
        at most `most_joined` marks go into one character, only so many and one can matter.

        Args:
            combining_class: The class of each character, (M,).
            begins_text: Whether it is the first of its text, (M,).

        Returns:
            The place of each character in the new order, (M,), and whether it may be joined, (M,).
        """
        group = tf.cumsum(tf.cast(tf.equal(combining_class, 0) | begins_text, tf.int64))
        key = group * _IS_SECOND + tf.cast(combining_class, tf.int64)
        order = tf.argsort(key, stable=True)
        key = tf.gather(key, order)
        of_before = tf.concat([key[:1] - 1, key[:-1]], 0)
        begins_class = tf.not_equal(key, of_before)
        firsts = tf.where(begins_class)[:, 0]
        number = tf.cumsum(tf.cast(begins_class, tf.int32)) - 1
        rank = tf.range(tf.size(key, tf.int64)) - tf.gather(firsts, number)
        return order, rank <= self._most_joined

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
        """Joins characters: what comes out at each place, (P,), and whether the place stays."""
        combining_class = self._class(properties)
        starts, sizes = self._runs(characters, properties, begins_text, table)

        def step(
            index: tf.Tensor,
            starts: tf.Tensor,
            sizes: tf.Tensor,
            base: tf.Tensor,
            before: tf.Tensor,
            characters: tf.Tensor,
            stays: tf.Tensor,
        ) -> tuple[tf.Tensor, ...]:
            """Takes the next character of each run that has one.

            Args:
                index: Its place in the run.
                starts: Where the run begins, (R,).
                sizes: Its length, (R,).
                base: The place of the last character of class 0, (R,); -1 before there is one.
                before: The class of the last mark after it that was not joined, (R,).
                characters: What comes out at each place so far, (P,).
                stays: Whether the place stays so far, (P,).
            """
            place = starts + index
            character, mark_class = tf.gather(characters, place), tf.gather(combining_class, place)
            first = tf.gather(characters, tf.maximum(base, 0))
            joined = _joined(first, character, table)
            is_blocked = tf.not_equal(before, 0) & (before >= mark_class)
            joins = (base >= 0) & ~is_blocked & (joined > 0)
            where = tf.boolean_mask(base, joins)[:, None]
            characters = tf.tensor_scatter_nd_update(
                characters, where, tf.boolean_mask(joined, joins)
            )
            gone = tf.boolean_mask(place, joins)[:, None]
            stays = tf.tensor_scatter_nd_update(stays, gone, tf.zeros_like(gone[:, 0], tf.bool))
            base = tf.where(~joins & tf.equal(mark_class, 0), place, base)
            before = tf.where(joins, before, mark_class)
            goes_on = sizes > index + 1
            runs = (tf.boolean_mask(run, goes_on) for run in (starts, sizes, base, before))
            return index + 1, *runs, characters, stays

        first_class = tf.gather(combining_class, starts)
        *_, characters, stays = tf.while_loop(
            lambda index, starts, *_: tf.size(starts) > 0,
            step,
            (
                tf.constant(1),
                starts,
                sizes,
                tf.where(tf.equal(first_class, 0), starts, -1),
                first_class,
                characters,
                tf.ones_like(characters, tf.bool),
            ),
            shape_invariants=(tf.TensorShape([]), *[tf.TensorShape([None])] * 6),
            name="compose",
        )
        return characters, stays

    def _runs(
        self,
        characters: tf.Tensor,
        properties: tf.Tensor,
        begins_text: tf.Tensor,
        table: tf.lookup.StaticHashTable,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The start and the size, (R,), of each run of two or more characters to look at.

        Before a place where a run begins nothing can be joined to what comes there.
        """
        begins_run = begins_text | tf.equal(properties, 0)
        # Such as Hangul vowels: of class 0, so that each can be the base of the next.
        seconds = tf.where(~begins_run & tf.equal(self._class(properties), 0))  # (Q, 1)
        before, second = tf.gather_nd(characters, seconds - 1), tf.gather_nd(characters, seconds)
        begins_run = tf.tensor_scatter_nd_update(
            begins_run, seconds, ~_are_neighbours(before, second, table)
        )
        starts = tf.cast(tf.where(begins_run)[:, 0], tf.int32)
        sizes = tf.concat([starts[1:], [tf.size(characters)]], 0)[: tf.size(starts)] - starts
        return tf.boolean_mask(starts, sizes > 1), tf.boolean_mask(sizes, sizes > 1)


def _pair_key(first: Any, second: Any) -> Any:
    """The key of two characters in the table: below 0, where no single character has its own."""
    return -(first * 2**_PAIR_BITS + second)


def _are_neighbours(
    before: tf.Tensor, second: tf.Tensor, table: tf.lookup.StaticHashTable
) -> tf.Tensor:
    """Whether a character that ends with the one before can be joined to the second."""
    vowel, trailing = second - unicode.FIRST_VOWEL, second - unicode.BEFORE_TRAILING
    is_vowel = (vowel >= 0) & (vowel < unicode.NUM_VOWELS)
    is_trailing = (trailing > 0) & (trailing < unicode.NUM_TRAILING)
    leading, ends_open = before - unicode.FIRST_LEADING, before - unicode.FIRST_VOWEL
    is_leading = (leading >= 0) & (leading < unicode.NUM_LEADING)
    is_syllable = (before >= unicode.FIRST_SYLLABLE) & (before <= unicode.LAST_SYLLABLE)
    is_open = is_syllable | ((ends_open >= 0) & (ends_open < unicode.NUM_VOWELS))
    key = _pair_key(tf.cast(before, tf.int64) + _NEIGHBOUR, tf.cast(second, tf.int64))
    return (is_leading & is_vowel) | (is_open & is_trailing) | (table.lookup(key) > 0)


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
    key = _pair_key(tf.cast(first, tf.int64), tf.cast(second, tf.int64))
    return tf.where(
        is_leading & is_vowel,
        with_vowel,
        tf.where(is_open & is_trailing, first + trailing, table.lookup(key)),
    )
