"""BPE merges inside a TensorFlow graph, in all segments of a batch at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_addnorm.serving.single_threaded_loops import SINGLE_THREADED

NEVER = np.iinfo(np.int32).max
"""The rank of two neighbours that are not merged."""

Merges = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""(last character, length) of K tokens -> of each token and the next one, (K - 1,): the rank of
their merge, and whether all merges of that rank in a segment may be done at once."""


def merge(segment: tf.Tensor, merges: Merges) -> tuple[tf.Tensor, tf.Tensor]:
    """Merges neighbours of each segment, the best rank first, until no pair is left.

    Args:
        segment: The segment of each character, (C,), rising.
        merges: Ranks the merges.

    Returns:
        The last character and the length of each token.
    """

    def step(
        index: tf.Tensor, tokens: tf.Tensor, finished: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        last, length = tf.unstack(tokens, axis=1)
        group = tf.gather(segment, last)
        # Each token with the next one.
        rank, at_once = merges(last, length)
        rank = _with_last(tf.where(tf.equal(group[:-1], group[1:]), rank, NEVER), NEVER)
        best = tf.gather(tf.math.segment_min(rank, group), group)

        unfinished = best < NEVER
        done = tf.where(~unfinished)[:, 0]
        finished = finished.write(index, tf.gather(tokens, done))

        candidate = tf.equal(rank, best) & unfinished
        place = tf.range(tf.size(last))
        is_merged = tf.where(
            _with_last(at_once, False),
            _every_other(candidate, place),
            _leftmost(candidate, group, place),
        )
        taken = tf.where(is_merged[:-1], length[:-1], 0)
        grown = tf.stack([last, length + tf.concat([[0], taken], 0)], 1)
        left = tf.where(unfinished & ~is_merged)[:, 0]
        return index + 1, tf.gather(grown, left), finished

    characters = tf.range(tf.size(segment))
    finished = tf.TensorArray(
        tf.int32, 0, dynamic_size=True, infer_shape=False, element_shape=[None, 2]
    )
    *_, finished = tf.while_loop(
        lambda index, tokens, finished: tf.size(tokens) > 0,
        step,
        (tf.constant(0), tf.stack([characters, tf.ones_like(characters)], 1), finished),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 2]), None),
        name=SINGLE_THREADED,
    )
    tokens = finished.concat()
    last, length = tf.unstack(tf.gather(tokens, tf.argsort(tokens[:, 0])), axis=1)
    return last, length


def look_up(matches: tf.Tensor, last: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """The number of the string of `length` characters that ends at `last`."""
    return tf.gather(tf.reshape(matches, [-1]), (last + 1) * matches.shape[1] - length)


def _with_last(values: tf.Tensor, last: int | bool) -> tf.Tensor:
    return tf.concat([values, [last]], 0)


def _every_other(candidate: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """Keeps the first, third, ... candidate of each run of neighbours, so that none overlap."""
    begins = candidate & ~tf.concat([[False], candidate[:-1]], 0)
    run = tf.cumsum(tf.cast(begins, tf.int32))
    first = tf.gather(tf.math.segment_min(place, run), run)
    return candidate & tf.equal((place - first) % 2, 0)


def _leftmost(candidate: tf.Tensor, group: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """Keeps the first candidate of each group."""
    place_of_candidate = tf.where(candidate, place, NEVER)
    first = tf.gather(tf.math.segment_min(place_of_candidate, group), group)
    return tf.equal(place_of_candidate, first) & candidate
