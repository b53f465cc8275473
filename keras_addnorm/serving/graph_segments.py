"""Splits texts into segments and joins their translations, inside the graph of an export.

`keras_addnorm.decoding.splitting` does the same in Python: both apply the same substitutions
and divide what is too long at the same tokens. All operations belong to TensorFlow's core.

Shape letters: B texts, R segments, N hypotheses, L tokens of a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_addnorm.data import BaseTokenizer
from keras_addnorm.decoding.length_penalties import LengthPenalty
from keras_addnorm.decoding.sentence_rules import JOIN_RULES, MARK, Rules, Substitution
from keras_addnorm.decoding.splitting import Boundaries, Splitting, require_room
from keras_addnorm.serving.graph_vocabulary import (
    OUTER_SPACE,
    SPACE_AT_THE_END,
    GraphVocabulary,
)
from keras_addnorm.serving.ragged_characters import lower_bounds, upper_bounds

# What the boundary before and after a token is, in one table: see `Boundaries`.
_ENDS_CLAUSE, _ENDS_WORD, _STARTS_WORD, _STARTS_CLAUSE = 1, 2, 4, 8


class GraphSegments(NamedTuple):
    """The segments of several texts.

    Args:
        tokens: The tokens of each segment, a ragged tensor (R, its tokens).
        joints: What follows its translation, (R,).
        first_rows: For each text the number of its first segment, and at the end R: (B + 1,) int64.
    """

    tokens: tf.RaggedTensor
    joints: tf.Tensor
    first_rows: tf.Tensor


class GraphSplitter:
    """`make_segments` inside a graph.

    Args:
        tokenizer: The source's tokenizer.
        graph_tokenizer: The same in the graph.
        splitting: How to split.
        longest: Number of tokens that the model reads at most, without the end token.

    Raises:
        ValueError: If the model reads no token beside the end token.
    """

    def __init__(
        self,
        tokenizer: BaseTokenizer,
        graph_tokenizer: GraphVocabulary,
        splitting: Splitting,
        longest: int,
    ) -> None:
        require_room(splitting, longest)
        self._tokenizer = graph_tokenizer
        self._splitting = splitting
        self._longest = longest
        found = Boundaries.of(tokenizer)
        self._boundaries = (
            _ENDS_CLAUSE * np.array(found.ends_clause, np.int32)
            + _ENDS_WORD * np.array(found.ends_word, np.int32)
            + _STARTS_WORD * np.array(found.starts_word, np.int32)
            + _STARTS_CLAUSE * np.array(found.starts_clause, np.int32)
        )

    def __call__(self, texts: tf.Tensor) -> GraphSegments:
        """Splits texts, (B,)."""
        rules = self._splitting.rules
        if rules is None:
            pieces, joints, first_rows = _whole(texts)
        else:
            are_sentences = tf.reduce_all(tf.strings.regex_full_match(texts, rules.one_sentence))
            pieces, joints, first_rows = tf.cond(
                are_sentences, lambda: _whole(texts), lambda: self._split(texts, rules)
            )
        segments = GraphSegments(self._tokenizer.tokenize_bare(pieces), joints, first_rows)
        return segments if self._splitting.cuts_off else self._divided(segments)

    def _split(self, texts: tf.Tensor, rules: Rules) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Splits texts into pieces: these, their joints, and the first piece of each text."""
        marked = _substitute(texts, rules.substitutions)
        if self._splitting.keeps_what_fits:
            fits = self._tokenizer.tokenize_bare(texts).row_lengths() <= self._longest
            marked = tf.where(fits, tf.strings.regex_replace(texts, MARK, ""), marked)
        found = tf.raw_ops.StringSplitV2(input=marked, sep=MARK)
        text, place = tf.unstack(found.indices, axis=1)
        # Only a blank text is an empty segment.
        kept = tf.where(tf.equal(place, 0) | tf.not_equal(found.values, ""))[:, 0]
        pieces = tf.gather(found.values, kept)
        sizes = tf.strings.length(pieces)
        bare = tf.strings.regex_replace(pieces, SPACE_AT_THE_END, "")
        gaps = tf.strings.substr(pieces, tf.strings.length(bare), sizes)
        first_rows = lower_bounds(tf.gather(text, kept), tf.range(tf.size(marked, tf.int64) + 1))
        return pieces, tf.strings.join([MARK, gaps]), first_rows

    def _divided(self, segments: GraphSegments) -> GraphSegments:
        """Divides the segments that are longer than the model."""
        too_long = segments.tokens.row_lengths() > self._longest
        values, splits, joints, first_rows = tf.cond(
            tf.reduce_any(too_long),
            lambda: self._divide(segments, too_long),
            lambda: (
                segments.tokens.values,
                segments.tokens.row_splits,
                segments.joints,
                segments.first_rows,
            ),
        )
        tokens = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return GraphSegments(tokens, joints, first_rows)

    def _divide(self, segments: GraphSegments, too_long: tf.Tensor) -> tuple[tf.Tensor, ...]:
        tokens, joints, first_rows = segments
        values, splits = tokens.values, tokens.row_splits
        table = tf.gather(tf.constant(self._boundaries), values)
        left, right = table[:-1], table[1:]
        has_space = _has(left, _ENDS_WORD) | _has(right, _STARTS_WORD)
        has_clause = _has(left, _ENDS_CLAUSE) & _has(right, _STARTS_CLAUSE)
        # The numbers of the tokens behind them, rising; the first one keeps the searches simple.
        spaces, clauses = (
            tf.concat([[tf.constant(0, tf.int64)], tf.where(found)[:, 0] + 1], 0)
            for found in (has_space, has_clause)
        )

        def last(places: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
            return tf.gather(places, upper_bounds(places, end) - 1)

        def step(
            index: tf.Tensor, start: tf.Tensor, end_of_row: tf.Tensor, starts: tf.TensorArray
        ) -> tuple[tf.Tensor, ...]:
            end = start + self._longest
            part = self._tokenizer.ends_of_characters(values, start, end)
            clause, space = last(clauses, end), last(spaces, end)
            end = tf.where(space > start, space, part)
            end = tf.where(clause - start >= (self._longest + 1) // 2, clause, end)
            starts = starts.write(index, end)
            goes_on = tf.where(end_of_row - end > self._longest)[:, 0]
            return index + 1, tf.gather(end, goes_on), tf.gather(end_of_row, goes_on), starts

        rows = tf.where(too_long)[:, 0]
        starts = tf.TensorArray(
            tf.int64, 0, dynamic_size=True, infer_shape=False, element_shape=[None]
        )
        unknown = tf.TensorShape([None])
        *_, starts = tf.while_loop(
            lambda index, start, *_: tf.size(start) > 0,
            step,
            (tf.constant(0), tf.gather(splits, rows), tf.gather(splits, rows + 1), starts),
            shape_invariants=(tf.TensorShape([]), unknown, unknown, None),
        )
        cuts = tf.sort(starts.concat())
        inside = tf.gather(has_clause, cuts - 1)
        joint = tf.where(inside, MARK, "")
        joint = tf.where(tf.gather(has_space, cuts - 1), f"{MARK} ", joint)
        # A part that ends at a cut stands before the segment that goes on there; a blank segment
        # ends where it begins, hence the row as the first key.
        ends = splits[1:]
        row_of_cut = upper_bounds(splits, cuts) - 1
        order = tf.argsort(
            tf.concat([2 * row_of_cut, 2 * tf.range(tf.size(ends, tf.int64)) + 1], 0), stable=True
        )
        new_ends = tf.gather(tf.concat([cuts, ends], 0), order)
        new_joints = tf.gather(tf.concat([joint, joints], 0), order)
        cuts_before = lower_bounds(row_of_cut, first_rows)
        new_splits = tf.concat([splits[:1], new_ends], 0)
        return values, new_splits, new_joints, first_rows + cuts_before


def _whole(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Each text as one piece."""
    first_rows = tf.range(tf.size(texts, tf.int64) + 1)
    return tf.identity(texts), tf.fill(tf.shape(texts), MARK), first_rows


def join(
    translations: tf.Tensor,
    scores: tf.Tensor,
    num_tokens: tf.Tensor,
    rows: GraphSegments,
    penalty: LengthPenalty,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Joins the k-th hypotheses of all segments of each text, for each k.

    Args:
        translations: Those of the segments, (R, N).
        scores: Their scores, (R, N).
        num_tokens: Their numbers of tokens, the end token included, (R, N).
        rows: The segments.
        penalty: What scores are divided by.

    Returns:
        The translations and the scores of the texts, (B, N) each.
    """
    is_alone = tf.equal(rows.first_rows[1:] - rows.first_rows[:-1], 1)
    # Most requests have texts of one segment only.
    joined: tuple[tf.Tensor, tf.Tensor] = tf.cond(
        tf.reduce_all(is_alone),
        lambda: (tf.identity(translations), tf.identity(scores)),
        lambda: _join(translations, scores, num_tokens, rows, penalty, is_alone[:, None]),
    )
    return joined


def _join(
    translations: tf.Tensor,
    scores: tf.Tensor,
    num_tokens: tf.Tensor,
    rows: GraphSegments,
    penalty: LengthPenalty,
    is_alone: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    first_rows = rows.first_rows
    text = text_of_rows(first_rows)
    num_texts, count = tf.size(first_rows) - 1, tf.shape(translations)[1]
    is_last = tf.equal(tf.range(tf.size(text, tf.int64)) + 1, tf.gather(first_rows, text + 1))
    joints = tf.where(is_last, "", rows.joints)
    joints = tf.broadcast_to(joints[:, None], tf.shape(translations))
    parts = tf.strings.join([translations, joints])
    joined = tf.strings.unsorted_segment_join(
        tf.reshape(parts, [-1]),
        tf.reshape(tf.cast(text, tf.int32)[:, None] * count + tf.range(count), [-1]),
        num_texts * count,
    )
    joined = _substitute(tf.reshape(joined, [-1, count]), JOIN_RULES)
    joined = tf.strings.regex_replace(joined, OUTER_SPACE, "")

    # Segments without tokens say nothing, whatever k is.
    is_blank = tf.equal(rows.tokens.row_lengths(), 0)[:, None]
    sums = tf.where(is_blank, 0.0, scores * penalty.divisor(num_tokens))
    # One after the other, thousands of float32 numbers are added with an error of 5e-5.
    total = tf.math.unsorted_segment_sum(tf.cast(sums, tf.float64), text, num_texts)
    total = tf.cast(total, tf.float32)
    total /= penalty.divisor(tf.math.unsorted_segment_sum(num_tokens, text, num_texts))

    # A text of one segment has its very translation and score.
    return (
        tf.where(is_alone, tf.gather(translations, first_rows[:-1]), joined),
        tf.where(is_alone, tf.gather(scores, first_rows[:-1]), total),
    )


def concat_rows(values: tf.Tensor, lengths: tf.Tensor, first_rows: tf.Tensor) -> tf.RaggedTensor:
    """Puts the rows of each text one behind the other, without their padding.

    Args:
        values: (R, L, ...).
        lengths: How much of each row is no padding, (R,).
        first_rows: The first row of each text, and R: (B + 1,).

    Returns:
        (B, the lengths' sums, ...).
    """
    is_real = tf.range(tf.shape(values)[1]) < lengths[:, None]
    before = tf.concat([[0], tf.cumsum(tf.cast(lengths, tf.int64))], 0)
    return tf.RaggedTensor.from_row_splits(
        tf.boolean_mask(values, is_real), tf.gather(before, first_rows), validate=False
    )


def mean_of_rows(rows: tf.RaggedTensor) -> tf.Tensor:
    """Returns the mean of what each text has, (B, D) float32; zeros for a text without anything."""
    # As of scores: a long text has many tokens.
    sums = tf.math.unsorted_segment_sum(
        tf.cast(rows.values, tf.float64), rows.value_rowids(), rows.nrows()
    )
    lengths = tf.cast(rows.row_lengths(), tf.float64)[:, None]
    return tf.cast(tf.math.divide_no_nan(sums, lengths), tf.float32)


def text_of_rows(first_rows: tf.Tensor) -> tf.Tensor:
    """Returns the text of each row, (R,) int64."""
    return upper_bounds(first_rows, tf.range(first_rows[-1])) - 1


def _substitute(texts: tf.Tensor, rules: Iterable[Substitution]) -> tf.Tensor:
    for pattern, rewrite in rules:
        texts = tf.strings.regex_replace(texts, pattern, rewrite)
    return texts


def _has(boundaries: tf.Tensor, kind: int) -> tf.Tensor:
    return tf.not_equal(tf.bitwise.bitwise_and(boundaries, kind), 0)
