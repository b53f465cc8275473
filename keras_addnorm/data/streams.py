"""Batches from a stream of token ids that is never in memory as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.data.buckets import TOKENS_PER_BATCH, Bucketing
from keras_addnorm.data.strings import describe
from keras_addnorm.data.vocabulary import END_ID, PAD_ID, START_ID

if TYPE_CHECKING:
    import tensorflow as tf


def bucket_by_length(
    dataset: tf.data.Dataset,
    *,
    bucket_lengths: Sequence[int],
    tokens_per_batch: int | None = None,
    batch_size: int | None = None,
    pad_id: int = PAD_ID,
    start_id: int = START_ID,
    end_id: int = END_ID,
) -> tf.data.Dataset:
    """Batches a stream of token ids by length, for data that does not fit into memory.

    The batches are laid out as those of `make_training_dataset`, in the order of the stream. Pairs
    longer than the largest bucket and pairs with an empty side are left out.

    Args:
        dataset: Elements `(source, target)`: integer vectors without start or end.
        bucket_lengths: Lengths of the buckets. A pair goes into the shortest bucket that holds both
            its sides with their end tokens.
        tokens_per_batch: Target positions of a batch, padding included: a bucket of length L has
            `tokens_per_batch // L` rows, and at least one. Pass either this or `batch_size`.
        batch_size: Rows of a batch, the same in every bucket.
        pad_id: The id of padding.
        start_id: The id that the decoder reads first.
        end_id: The id that ends a sequence.

    Returns:
        A data set of `({"source", "target"}, labels)`, int32. All batches of a bucket have one
        shape: the last one is filled up with rows of padding.

    Raises:
        TypeError: If `dataset` is no `tf.data.Dataset`.
        ValueError: If a number does not fit, or not exactly one of `tokens_per_batch` and
            `batch_size` is given.

    Example:
        ```python
        import tensorflow as tf

        from keras_addnorm.data import bucket_by_length

        ids = tf.data.Dataset.from_tensors(([5, 6], [7]))
        (inputs, labels), = bucket_by_length(ids, bucket_lengths=(4,), batch_size=1)
        assert inputs["source"].numpy().tolist() == [[5, 6, 2, 0]]
        assert inputs["target"].numpy().tolist() == [[1, 7, 0, 0]]
        assert labels.numpy().tolist() == [[7, 2, 0, 0]]
        ```
    """
    import tensorflow as tf

    if bucket_lengths is None:
        raise ValueError("Expected bucket lengths, ints of at least 2; received None.")
    if (tokens_per_batch is None) == (batch_size is None):
        raise ValueError(
            "Expected either tokens_per_batch or batch_size; received "
            f"tokens_per_batch={tokens_per_batch}, batch_size={batch_size}."
        )
    if batch_size is not None and not is_whole(batch_size, 1):
        raise ValueError(f"Expected at least 1 row, an int; received batch_size={batch_size!r}.")
    for name, token in {"pad_id": pad_id, "start_id": start_id, "end_id": end_id}.items():
        if not is_whole(token, 0):
            raise ValueError(f"Expected an id, an int of 0 or more; received {name}={token!r}.")
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"Expected a tf.data.Dataset of pairs of ids; received {describe(dataset)}."
        )
    positions = TOKENS_PER_BATCH if tokens_per_batch is None else tokens_per_batch
    bucketing = Bucketing(bucket_lengths=bucket_lengths, tokens_per_batch=positions)
    buckets = bucketing.buckets_for(np.zeros(0))
    lengths = tf.constant([bucket.length for bucket in buckets], tf.int64)
    sizes = tf.constant([batch_size or bucket.batch_size for bucket in buckets], tf.int64)

    def length(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.maximum(tf.size(source), tf.size(target)) + 1, tf.int64)

    def fits(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        filled = tf.logical_and(tf.size(source) > 0, tf.size(target) > 0)
        return tf.logical_and(filled, length(source, target) <= lengths[-1])

    def bucket_of(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        return tf.searchsorted(lengths, length(source, target)[None], out_type=tf.int64)[0]

    def teacher_forcing(source: tf.Tensor, target: tf.Tensor) -> tuple[Any, tf.Tensor]:
        source, target = tf.cast(source, tf.int32), tf.cast(target, tf.int32)
        shifted = tf.concat([[start_id], target], 0)
        inputs = {"source": tf.concat([source, [end_id]], 0), "target": shifted}
        return inputs, tf.concat([target, [end_id]], 0)

    def batch(bucket: tf.Tensor, members: tf.data.Dataset) -> tf.data.Dataset:
        row, size = lengths[bucket], sizes[bucket]
        padded = members.map(teacher_forcing).padded_batch(
            size,
            padded_shapes=({"source": [row], "target": [row]}, [row]),
            padding_values=pad_id,
        )

        def fill(ids: tf.Tensor) -> tf.Tensor:
            missing = size - tf.shape(ids, tf.int64)[0]
            return tf.pad(ids, [[0, missing], [0, 0]], constant_values=pad_id)

        return padded.map(lambda *arrays: tf.nest.map_structure(fill, arrays))

    return dataset.filter(fits).group_by_window(
        bucket_of, batch, window_size_func=lambda bucket: sizes[bucket]
    )
