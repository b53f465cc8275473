"""Batches from a stream of token ids that is never in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.data.batching import Batch
from keras_addnorm.data.buckets import TOKENS_PER_BATCH, Bucket, Bucketing, bucket_of
from keras_addnorm.data.corpus import Corpus, TokenizedPairs
from keras_addnorm.data.strings import describe
from keras_addnorm.data.text_format import BoundFormat
from keras_addnorm.data.token_rows import TokenRows
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
        raise ArgumentError(expected="bucket lengths, ints of at least 2", value=None)
    if (tokens_per_batch is None) == (batch_size is None):
        raise ArgumentError(
            expected="either `tokens_per_batch` or `batch_size`",
            tokens_per_batch=tokens_per_batch,
            batch_size=batch_size,
        )
    if batch_size is not None and not is_whole(batch_size, 1):
        raise ArgumentError(expected="at least 1 row, an int", batch_size=batch_size)
    for name, token in {"pad_id": pad_id, "start_id": start_id, "end_id": end_id}.items():
        if not is_whole(token, 0):
            raise ArgumentError(expected="an id, an int of 0 or more", received=f"{name}={token!r}")
    if not isinstance(dataset, tf.data.Dataset):
        raise ArgumentTypeError(
            expected="a tf.data.Dataset of pairs of ids", received=describe(dataset)
        )
    positions = TOKENS_PER_BATCH if tokens_per_batch is None else tokens_per_batch
    bucketing = Bucketing(bucket_lengths=bucket_lengths, tokens_per_batch=positions)
    buckets = [
        Bucket(bucket.length, batch_size or bucket.batch_size)
        for bucket in bucketing.buckets_for(np.zeros(0))
    ]
    around = BoundFormat((), (), (end_id,), (), False, None, pad_id, start_id, end_id, None)

    def batch(bucket: Bucket, pairs: list[Any]) -> Batch:
        ids = TokenizedPairs(*(TokenRows.from_rows(side) for side in zip(*pairs, strict=True)))
        rows = np.arange(len(pairs))
        return Corpus(ids, (bucket,), rows, 1, around, None).batch(bucket, rows)

    def batches() -> Iterator[Batch]:
        waiting: list[list[Any]] = [[] for _ in buckets]
        for source, target in dataset.as_numpy_iterator():
            place = int(bucket_of(max(len(source), len(target)) + 1, buckets))
            if len(source) and len(target) and place < len(buckets):
                waiting[place].append((source, target))
                if len(waiting[place]) == buckets[place].batch_size:
                    yield batch(buckets[place], waiting[place])
                    waiting[place] = []
        for bucket, pairs in zip(buckets, waiting, strict=True):
            if pairs:
                yield batch(bucket, pairs)

    ids = tf.TensorSpec((None, None), tf.int32)
    signature = {"source": ids, "target": ids}, ids
    return tf.data.Dataset.from_generator(batches, output_signature=signature)
