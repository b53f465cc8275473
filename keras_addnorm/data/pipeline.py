"""Batches for teacher forcing, in few shapes.

XLA compiles a training step once for every shape, so this pipeline makes exactly one shape a
*bucket*: source, target and labels of a bucket are all `(batch size, bucket length)`, and the last
batch of a bucket is filled up with rows of padding. Loss and metrics ignore the labels of padding.

    source   tokens, end          1st argument of the encoder
    target   start, tokens        what the decoder sees
    labels   tokens, end          what the decoder must predict next
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keras_addnorm.data.base_tokenizer import BaseTokenizer
from keras_addnorm.data.batching import Batching
from keras_addnorm.data.buckets import NUM_BUCKETS, TOKENS_PER_BATCH
from keras_addnorm.data.epochs import Epochs
from keras_addnorm.data.subword_sampling import SubwordSampling
from keras_addnorm.data.tokenizer_pair import TokenizerPair

# A training on JAX or torch needs no TensorFlow, see `make_training_batches`.
if TYPE_CHECKING:
    import tensorflow as tf


def make_training_dataset(
    pairs: Iterable[Any],
    tokenizers: BaseTokenizer | TokenizerPair,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    num_buckets: int = NUM_BUCKETS,
    bucket_lengths: Sequence[int] | None = None,
    max_length: int | None = None,
    shuffle_seed: int | None = None,
    first_epoch: int = 0,
    batches_per_update: int = 1,
    steps_per_epoch: int | None = None,
    repeats: int = 1,
    row_weights: bool = False,
    rows_multiple_of: int = 1,
    row_share: tuple[int, int] = (0, 1),
    sampling: SubwordSampling | None = None,
    alignments: Sequence[Any] | None = None,
) -> tf.data.Dataset:
    """Tokenises sentence pairs once and serves them as bucketed batches.

    The ids are kept in memory (2 bytes a token, or 4 with more than 65,536 pieces), so no epoch
    tokenises again. With a seed, every
    iteration over the data set is the next epoch: sentences are shuffled within their bucket and
    batches across buckets, anew in each epoch and the same in each run. Without a seed, the order
    is fixed, as validation wants it. The number of batches is known and the same in every epoch.

    Args:
        pairs: Pairs (source text, target text): a `tf.data.Dataset` of two string scalars, or any
            iterable of two strings each.
        tokenizers: The pair of tokenizers, or one tokenizer for both languages. Its text format is
            put around the tokens; languages in it have to be known, see
            `TokenizerPair.with_languages`.
        tokens_per_batch: Target positions of a batch, padding included. A bucket of length L has
            `tokens_per_batch // L` rows, and at least one.
        num_buckets: The most lengths there may be; `fit_bucket_lengths` chooses the lengths that
            leave the least padding. A training step is compiled once for each length.
        bucket_lengths: If given, the lengths of the buckets, instead of fitted ones. A pair goes
            into the shortest bucket that holds both its sides with their end tokens.
        max_length: The tokens of the longest pair, end included; 128, or the largest of
            `bucket_lengths`, if not given. Larger `bucket_lengths` are left out.
        shuffle_seed: Seed of the order, or `None` for a fixed order.
        first_epoch: Number of the first iteration, for a training that is resumed.
        batches_per_update: For gradient accumulation: how many batches share an update. Above 1,
            batches have a third part, a weight for each row: the number of batches of the update
            divided by its tokens. The *sum* of the weighted losses of tokens, averaged over the
            batches of an update as Keras does, is then the mean over all tokens of the update. An
            epoch is filled up with batches of padding to whole updates.
        steps_per_epoch: If given, each iteration has so many batches, and goes on where the one
            before has ended: in the middle of a pass over the pairs, or in the next one. So a
            training can validate after a number of updates.
        repeats: How often each row stands in a batch, in succession: `RDropCrossentropy` wants 2.
            `tokens_per_batch` counts a row once.
        row_weights: Whether batches have row weights even if an update is one batch, for several
            replicas whose losses are added up.
        rows_multiple_of: The number of rows of each batch is a multiple of this number, so that
            this many devices can share the rows evenly.
        row_share: For several processes that train together: `(index, count)`, which of how many
            equal parts of each batch's rows this process reads. Order, lengths and weights are
            those of the whole batches.
        sampling: If given, each epoch splits the texts into other pieces, which follow from the
            seed and the epoch, and puts each pair into the bucket that its pieces need. A pair
            keeps the pieces of `encode` if no bucket holds its sampled pieces, or if the epoch
            would need more batches than two samples of the corpus needed.
        alignments: For guided alignment (`keras_addnorm.training.GuidedAlignment`): for each pair
            the links of its pieces, `(L, 2)`, from `align_pieces` or `piece_links`. Inputs then
            have a third array, `"alignment"`, float32 of `(rows, length, length)`: in each row of
            a target token the links, divided by their number and by the tokens of the batch, or
            with the row's weight if there are row weights.

    Returns:
        A data set of `({"source", "target"}, labels)`, int32 arrays of the shape of their bucket.
        Its attribute `report` is a `PipelineReport`; its attribute `epochs` (`Epochs`) tells and
        sets where the next iteration starts.

    Raises:
        TypeError: If an element of `pairs` is not a pair of strings.
        ValueError: If a length is not positive, the rows cannot be shared evenly, no pair is left,
            or pieces are to be sampled without a seed.

    Example:
        ```python
        from keras_addnorm.data import TokenizerPair, make_training_dataset

        pairs = [("a small house", "ein kleines Haus"), ("a mouse", "eine Maus")]
        tokenizers = TokenizerPair.train(pairs, vocabulary_size=22)
        dataset = make_training_dataset(
            pairs, tokenizers, tokens_per_batch=64, bucket_lengths=(16, 32), shuffle_seed=1
        )
        for inputs, labels in dataset:
            assert inputs["source"].shape == inputs["target"].shape == labels.shape
        print(dataset.report)
        ```
    """
    import tensorflow as tf

    batching = Batching(
        tokens_per_batch=tokens_per_batch,
        num_buckets=num_buckets,
        bucket_lengths=bucket_lengths,
        max_length=max_length,
        shuffle_seed=shuffle_seed,
        first_epoch=first_epoch,
        batches_per_update=batches_per_update,
        steps_per_epoch=steps_per_epoch,
        repeats=repeats,
        row_weights=row_weights,
        rows_multiple_of=rows_multiple_of,
        row_share=row_share,
        sampling=sampling,
        alignments=alignments,
    )
    epochs = Epochs.from_texts(pairs, tokenizers, batching)
    report = epochs.report(first_epoch)
    ids = tf.TensorSpec((None, None), tf.int32)
    inputs = {"source": ids, "target": ids}
    if alignments is not None:
        inputs["alignment"] = tf.TensorSpec((None, None, None), tf.float32)
    signature: tuple[Any, ...] = (inputs, ids)
    if batching.has_row_weights:
        signature = (*signature, tf.TensorSpec((None, 1), tf.float32))
    dataset = tf.data.Dataset.from_generator(epochs.next_iteration, output_signature=signature)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(epochs)))
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    dataset.report, dataset.epochs = report, epochs
    return dataset
