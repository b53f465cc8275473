"""Binary search in sorted vectors, as `numpy.searchsorted`."""

from __future__ import annotations

import tensorflow as tf


def lower_bounds(rising: tf.Tensor, values: tf.Tensor, dtype: tf.DType = tf.int64) -> tf.Tensor:
    """For each value, how many elements of a sorted vector are smaller."""
    return tf.raw_ops.LowerBound(sorted_inputs=rising[None], values=values[None], out_type=dtype)[0]


def upper_bounds(rising: tf.Tensor, values: tf.Tensor, dtype: tf.DType = tf.int64) -> tf.Tensor:
    """For each value, how many elements of a sorted vector are not larger."""
    return tf.raw_ops.UpperBound(sorted_inputs=rising[None], values=values[None], out_type=dtype)[0]
