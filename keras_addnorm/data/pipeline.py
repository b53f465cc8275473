"""Batches for teacher forcing, in few shapes.

XLA compiles a training step once for every shape it meets, so this pipeline makes exactly one
shape a *bucket*: source, target and labels of a bucket are all `(batch size, bucket length)`, and
the last batch of a bucket is filled up with rows of padding. Such rows have no label that counts:
loss and metrics leave `pad_id` out.

    source   tokens, end          1st argument of the encoder
    target   start, tokens        what the decoder sees
    labels   tokens, end          what the decoder must say next
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_addnorm.data.buckets import (
    NUM_BUCKETS,
    TOKENS_PER_BATCH,
    Bucket,
    Bucketing,
    bucket_of,
    num_batches,
)
from keras_addnorm.data.subword_sampling import SubwordSampling
from keras_addnorm.data.tokenizer import (
    END_ID,
    PAD_ID,
    START_ID,
    Tokenizer,
    TokenizerPair,
    string_pairs,
)

# Not every training has TensorFlow: see `make_training_batches`.
if TYPE_CHECKING:
    import tensorflow as tf

_TEXTS_AT_ONCE = 10_000

# How many drawn segmentations of the corpus say how many batches every epoch has.
_DRAWS = 2

# Inputs and labels; where asked for, a weight for each row, too.
Batch = tuple[Any, ...]


@dataclass(frozen=True)
class PipelineReport:
    """What a training data set holds. Lengths count the end token.

    Where pieces are sampled, tokens and padding are those of the first epoch served.

    Attributes:
        kept: Sentence pairs in the batches.
        empty: Pairs left out because a side has no tokens.
        too_long: Pairs left out because a side is longer than the largest bucket.
        source_tokens: Tokens of the kept source sentences.
        target_tokens: Tokens of the kept target sentences: the labels that count.
        batches: Batches an epoch.
        padding: Share of the label positions of an epoch that is padding.
        buckets: For each bucket its length, its batch size and its number of sentence pairs.
    """

    kept: int
    empty: int
    too_long: int
    source_tokens: int
    target_tokens: int
    batches: int
    padding: float
    buckets: tuple[tuple[int, int, int], ...]

    @property
    def dropped(self) -> int:
        """Pairs left out, for whatever reason."""
        return self.empty + self.too_long

    def __str__(self) -> str:
        lengths = ", ".join(str(length) for length, _, pairs in self.buckets if pairs)
        noun = "batch" if self.batches == 1 else "batches"
        return (
            f"{self.kept:,} pairs kept, {self.empty:,} empty, {self.too_long:,} too long; "
            f"{self.target_tokens:,} target tokens in {self.batches:,} {noun} of length {lengths}: "
            f"{self.padding:.1%} padding"
        )


def make_training_dataset(
    pairs: Iterable[Any],
    tokenizers: Tokenizer | TokenizerPair,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    num_buckets: int = NUM_BUCKETS,
    bucket_lengths: Sequence[int] | None = None,
    max_length: int | None = None,
    shuffle_seed: int | None = None,
    first_epoch: int = 0,
    batches_per_update: int = 1,
    repeats: int = 1,
    row_weights: bool = False,
    rows_multiple_of: int = 1,
    row_share: tuple[int, int] = (0, 1),
    sampling: SubwordSampling | None = None,
) -> tf.data.Dataset:
    """Tokenises sentence pairs once and serves them as bucketed batches.

    The ids are kept in memory (4 bytes a token), so no epoch tokenises again. With a seed, every
    iteration over the data set is the next epoch: sentences are shuffled within their bucket and
    batches across buckets, anew in each epoch and the same in each run. Without one, the order is
    fixed, as validation wants it. The number of batches is the same in every epoch and known.

    Args:
        pairs: Pairs (source text, target text): a `tf.data.Dataset` of two string scalars, or any
            iterable of two strings each.
        tokenizers: The pair of tokenizers, or one tokenizer for both languages.
        tokens_per_batch: Target positions of a batch, padding included. A bucket of length L has
            `tokens_per_batch // L` rows, and at least one.
        num_buckets: How many lengths there are at most; `fit_bucket_lengths` chooses those that
            leave the least padding. A training step is compiled once for each.
        bucket_lengths: If given, the lengths of the buckets, instead of fitted ones. A pair goes
            into the first one that holds both its sides with their end tokens.
        max_length: The tokens of the longest pair, end included; 128, or the largest of
            `bucket_lengths`, if not given. Of `bucket_lengths`, those below it remain.
        shuffle_seed: Seed of the order, or `None` for a fixed order.
        first_epoch: Number of the first iteration, for a run that goes on where another stopped.
        batches_per_update: For gradient accumulation: how many batches share an update. Above 1,
            batches have a third part, a weight for each row: the number of batches of the update
            divided by its tokens. The *sum* of the weighted losses of tokens, averaged over the
            batches of an update as Keras does, is then the mean over all tokens of the update. An
            epoch is filled up with batches of padding to whole updates.
        repeats: How often each row stands in a batch, in succession: `RDropCrossentropy` wants 2.
            `tokens_per_batch` counts it once.
        row_weights: Whether batches have that third part also where an update is one batch, for
            several replicas whose losses are added up.
        rows_multiple_of: The rows of each batch are a multiple of this (and at least as many), so
            that as many devices can share them evenly.
        row_share: For several processes that train together: `(index, count)`, which of how many
            equal parts of each batch's rows this one reads. Order, lengths and weights are those of
            the whole batches.
        sampling: If given, each epoch splits the texts into other pieces, which follow from the
            seed and the epoch. Each epoch has the buckets that its pieces
            need. What no bucket holds is split as `encode` does, and so are pairs of an epoch that
            would need more batches than two draws said.

    Returns:
        A data set of `({"source", "target"}, labels)`, int32 arrays of the shape of their bucket.
        Its attribute `report` is a `PipelineReport`, its attribute `epochs` (`Epochs`) says and
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

    report, epochs = tokenised(
        pairs,
        tokenizers,
        tokens_per_batch=tokens_per_batch,
        num_buckets=num_buckets,
        bucket_lengths=bucket_lengths,
        max_length=max_length,
        shuffle_seed=shuffle_seed,
        first_epoch=first_epoch,
        batches_per_update=batches_per_update,
        repeats=repeats,
        row_weights=row_weights,
        rows_multiple_of=rows_multiple_of,
        row_share=row_share,
        sampling=sampling,
    )
    ids = tf.TensorSpec((None, None), tf.int32)
    signature: tuple[Any, ...] = ({"source": ids, "target": ids}, ids)
    if row_weights or batches_per_update > 1:
        signature = (*signature, tf.TensorSpec((None, 1), tf.float32))
    dataset = tf.data.Dataset.from_generator(epochs.next_iteration, output_signature=signature)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(report.batches))
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    dataset.report, dataset.epochs = report, epochs
    return dataset


def tokenised(
    pairs: Iterable[Any],
    tokenizers: Tokenizer | TokenizerPair,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    num_buckets: int = NUM_BUCKETS,
    bucket_lengths: Sequence[int] | None = None,
    max_length: int | None = None,
    shuffle_seed: int | None = None,
    first_epoch: int = 0,
    batches_per_update: int = 1,
    repeats: int = 1,
    row_weights: bool = False,
    rows_multiple_of: int = 1,
    row_share: tuple[int, int] = (0, 1),
    sampling: SubwordSampling | None = None,
) -> tuple[PipelineReport, Epochs]:
    """Tokenises sentence pairs, for whatever serves the batches.

    Args:
        pairs: See `make_training_dataset`, as for the rest.
        tokenizers: See there.
        tokens_per_batch: See there.
        num_buckets: See there.
        bucket_lengths: See there.
        max_length: See there.
        shuffle_seed: See there.
        first_epoch: See there.
        batches_per_update: See there.
        repeats: See there.
        row_weights: See there.
        rows_multiple_of: See there.
        row_share: See there.
        sampling: See there.

    Returns:
        What there is, and its epochs.

    Raises:
        TypeError: If an element of `pairs` is not a pair of strings.
        ValueError: If a length is not positive, the rows cannot be shared evenly, no pair is left,
            or pieces are to be sampled without a seed.
    """
    bucketing = Bucketing(
        num_buckets, bucket_lengths, max_length, tokens_per_batch, rows_multiple_of
    )
    if sampling is not None and shuffle_seed is None:
        raise ValueError(
            f"Sampled pieces follow from a seed. Expected a shuffle_seed with {sampling}; received "
            "shuffle_seed=None. Pass one, or leave sampling out: validation goes without."
        )
    corpus = _Corpus.from_texts(pairs, TokenizerPair.of(tokenizers), bucketing, sampling)
    _require_even_shares(corpus.buckets, row_share)
    report = corpus.report(batches_per_update)
    if not report.kept:
        raise ValueError(
            "No sentence pair is left to train on. Expected at least one pair with text on both "
            f"sides and at most {bucketing.longest} tokens; received {report.empty} pairs with an "
            f"empty side and {report.too_long} that are too long. Check the files, or pass a "
            "larger max_length."
        )
    serving = _Serving(
        batches_per_update, repeats, row_weights or batches_per_update > 1, row_share
    )
    epochs = Epochs(corpus, shuffle_seed, first_epoch, serving)
    return epochs.report(first_epoch), epochs


class Epochs:
    """The epochs of a training data set: which one is next, and single batches of any.

    The order of an epoch follows from the seed and its number alone, so a training can go on in
    the middle of one, and a batch that made trouble can be had again.

    Args:
        corpus: The tokenised pairs.
        shuffle_seed: Seed of the order, or `None` for a fixed order.
        epoch: Number of the first epoch.
        serving: What batches are made of, see `make_training_dataset`.
    """

    def __init__(
        self, corpus: _Corpus, shuffle_seed: int | None, epoch: int, serving: _Serving
    ) -> None:
        self._corpus = corpus
        self._shuffle_seed = shuffle_seed
        self._serving = serving
        self._next = (epoch, 0)
        self._drawn: tuple[int, _Corpus] | None = None

    def start_at(self, epoch: int, batch: int = 0) -> None:
        """Says where the next iteration over the data set starts.

        The ones after it are the epochs that follow, from their first batch on. The data set still
        states the length of a whole epoch, so behind the rest of an epoch come as many of its first
        batches as were left out: whoever starts inside of one has to stop in time.

        Args:
            epoch: Number of the epoch, from 0.
            batch: How many of its batches are left out.
        """
        self._next = (epoch, batch)

    @functools.cached_property
    def plan(self) -> str:
        """A digest of all that decides which pairs a batch has: ids, buckets and seed."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self._corpus.buckets, self._shuffle_seed)).encode())
        if self._corpus.resampling is not None:
            digest.update(repr(self._corpus.resampling.sampling).encode())
        for side in (self._corpus.source, self._corpus.target):
            digest.update(side.offsets.data)
            digest.update(side.ids.data)
        return digest.hexdigest()

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that the next iteration is of."""
        return self._next[0]

    def next_iteration(self) -> Iterator[Batch]:
        """Returns the batches of the next iteration; the one after it is the next epoch."""
        epoch, batch = self._next
        self._next = (epoch + 1, 0)
        if not batch:
            return self.batches(epoch)
        # On JAX with a GPU, Keras reads a batch ahead, and must not find fewer than are stated.
        left_out = itertools.islice(self.batches(epoch), batch)
        return itertools.chain(self.batches(epoch, batch), left_out)

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Makes the batches of an epoch, as the data set serves them.

        Args:
            epoch: Number of the epoch, from 0.
            first: How many batches are left out; they cost nothing.

        Returns:
            The batches, as NumPy arrays.
        """
        return self._pieces_of(epoch).batches(self._seed_of(epoch), first, self._serving)

    def report(self, epoch: int) -> PipelineReport:
        """Counts what an epoch holds.

        Args:
            epoch: Number of the epoch, from 0.

        Returns:
            The counts.
        """
        return self._pieces_of(epoch).report(self._serving.batches_per_update)

    def _seed_of(self, epoch: int) -> tuple[int, int] | None:
        return None if self._shuffle_seed is None else (self._shuffle_seed, epoch)

    def _pieces_of(self, epoch: int) -> _Corpus:
        """The corpus as an epoch splits it; that of the epoch last asked for is at hand."""
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = epoch, self._corpus.drawn(self._seed_of(epoch))
        return self._drawn[1]


def bucket_by_length(
    dataset: tf.data.Dataset,
    *,
    bucket_lengths: Sequence[int],
    tokens_per_batch: int | None = None,
    batch_size: int | None = None,
    pad_id: int = PAD_ID,
) -> tf.data.Dataset:
    """Batches a stream of token ids by length, for data that does not fit into memory.

    As `make_training_dataset`, but over a `tf.data.Dataset` of ids, which is read as it comes.
    Pairs longer than the largest bucket and pairs with an empty side are left out.

    Args:
        dataset: Elements `(source, target)`: integer vectors without start or end.
        bucket_lengths: Lengths of the buckets. A pair goes into the first one that holds both its
            sides with their end tokens.
        tokens_per_batch: Target positions of a batch, padding included: a bucket of length L has
            `tokens_per_batch // L` rows, and at least one. Either this or `batch_size`.
        batch_size: Rows of a batch, the same in every bucket.
        pad_id: The id of padding.

    Returns:
        A data set of `({"source", "target"}, labels)`, int32. All batches of a bucket have one
        shape: the last is filled up with rows of padding.

    Raises:
        ValueError: If a length is not positive, or not exactly one of `tokens_per_batch` and
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

    if (tokens_per_batch is None) == (batch_size is None):
        raise ValueError(
            "Expected either tokens_per_batch or batch_size; received "
            f"tokens_per_batch={tokens_per_batch}, batch_size={batch_size}."
        )
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"Expected at least 1 row; received batch_size={batch_size}.")
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
        shifted = tf.concat([[START_ID], target], 0)
        inputs = {"source": tf.concat([source, [END_ID]], 0), "target": shifted}
        return inputs, tf.concat([target, [END_ID]], 0)

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


@dataclass(frozen=True)
class _Serving:
    """What of the corpus' batches is handed out, and with which weights."""

    batches_per_update: int
    repeats: int
    row_weights: bool
    row_share: tuple[int, int]

    def own(self, batch: Batch) -> Batch:
        """This process' rows of a batch."""
        inputs, *others = batch
        index, count = self.row_share
        size = len(others[0]) // count
        rows = slice(index * size, (index + 1) * size)
        return {name: ids[rows] for name, ids in inputs.items()}, *(part[rows] for part in others)


def _require_even_shares(buckets: tuple[Bucket, ...], row_share: tuple[int, int]) -> None:
    index, count = row_share
    rows = [bucket.batch_size for bucket in buckets]
    if not 0 <= index < count or any(size % count for size in rows):
        raise ValueError(
            "The rows of a batch cannot be shared evenly. Expected row_share=(index, count) with "
            "0 <= index < count, and batches with a multiple of count rows; received "
            f"row_share={row_share} and batches with {rows} rows. Pass rows_multiple_of={count}."
        )


@dataclass(frozen=True)
class _Side:
    """The ids of all sentences of one language, one after the other."""

    ids: np.ndarray  # (tokens,) int32
    offsets: np.ndarray  # (sentences + 1,) int64

    @classmethod
    def from_rows(cls, rows: list[np.ndarray]) -> _Side:
        sizes = [len(row) for row in rows]
        ids = np.concatenate([np.zeros(0, np.int32), *rows])
        return cls(ids, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))

    def replaced(self, rows: Sequence[Sequence[int]], where: np.ndarray) -> _Side:
        """Other ids for the sentences `where`, the same for the rest."""
        own = np.split(self.ids, self.offsets[1:-1])
        return self.from_rows(
            [
                np.array(row, np.int32) if other else kept
                for row, kept, other in zip(rows, own, where, strict=True)
            ]
        )

    def sentences(self) -> list[list[int]]:
        ids = self.ids.tolist()
        return [ids[start:end] for start, end in itertools.pairwise(self.offsets.tolist())]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def rows(self, members: np.ndarray, shape: tuple[int, int], shift: int) -> np.ndarray:
        """Lays sentences out in an array of padding, `shift` positions from its left edge."""
        out = np.full(shape, PAD_ID, np.int32)
        starts, sizes = self.offsets[members], self.lengths_of(members)
        row = np.repeat(np.arange(len(members)), sizes)
        column = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        out[row, column + shift] = self.ids[np.repeat(starts, sizes) + column]
        return out

    def lengths_of(self, members: np.ndarray) -> np.ndarray:
        sizes: np.ndarray = self.offsets[members + 1] - self.offsets[members]
        return sizes


@dataclass(frozen=True)
class _Resampling:
    """How the pieces of a corpus are sampled."""

    tokenizers: TokenizerPair
    sampling: SubwordSampling

    def drawn(
        self, sides: tuple[_Side, _Side], seed: tuple[int, ...]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Returns other ids of both sides; the same seed gives the same."""
        seeds = np.random.SeedSequence(seed).generate_state(2)
        source, target = (
            tokenizer.resample_batch(side.sentences(), self.sampling, int(own_seed))
            for tokenizer, side, own_seed in zip(
                (self.tokenizers.source, self.tokenizers.target), sides, seeds, strict=True
            )
        )
        return source, target


@dataclass(frozen=True)
class _Corpus:
    """Tokenised pairs in memory, and which of them belong to which bucket.

    Attributes:
        source: The source sentences' ids.
        target: The target sentences' ids.
        buckets: The buckets, the shortest first.
        bucket_of: For each pair the index of its bucket; -1 if a side is empty, and one more than
            there are if it is too long.
        num_batches: Batches of every epoch.
        resampling: How the pieces are sampled, if they are.
    """

    source: _Side
    target: _Side
    buckets: tuple[Bucket, ...]
    bucket_of: np.ndarray
    num_batches: int
    resampling: _Resampling | None

    @classmethod
    def from_texts(
        cls,
        pairs: Iterable[Any],
        tokenizers: TokenizerPair,
        bucketing: Bucketing,
        sampling: SubwordSampling | None,
    ) -> _Corpus:
        source, target = (_Side.from_rows(rows) for rows in _encode(pairs, tokenizers))
        resampling = None if sampling is None else _Resampling(tokenizers, sampling)
        plain = np.maximum(source.lengths, target.lengths) + 1
        filled = np.minimum(source.lengths, target.lengths) > 0
        counts = filled & (plain <= bucketing.longest)
        drawn = (
            [_lengths(resampling.drawn((source, target), (draw,))) for draw in range(_DRAWS)]
            if resampling is not None and counts.any()
            else []
        )
        buckets = bucketing.buckets_for(
            np.concatenate([lengths[counts] for lengths in (plain, *drawn)])
        )
        index = np.where(filled, bucket_of(plain, buckets), -1)
        corpus = cls(source, target, buckets, index, num_batches(index, buckets), resampling)
        if resampling is None:
            return corpus
        enough = [
            num_batches(corpus._redivided(lengths, corpus._fitting(lengths)), buckets) + 1
            for lengths in drawn
        ]
        batches = max([corpus.num_batches, *enough])
        return dataclasses.replace(corpus, num_batches=min(batches, int(corpus.kept.sum())))

    @functools.cached_property
    def kept(self) -> np.ndarray:
        """Which pairs are in the batches."""
        return (self.bucket_of >= 0) & (self.bucket_of < len(self.buckets))

    def drawn(self, seed: tuple[int, int] | None) -> _Corpus:
        """The same pairs, split into the pieces of an epoch and in the buckets that these need."""
        if self.resampling is None or seed is None:
            return self
        rows = self.resampling.drawn((self.source, self.target), seed)
        lengths = _lengths(rows)
        fits = self._fitting(lengths)
        # Seldom, a draw takes more batches than an epoch has: then some pairs are split as `encode`
        # does, a sixty-fourth of them or twice, four times as many, until all are.
        for plain in (0.0, *(0.5**power for power in reversed(range(7)))):
            fits[len(fits) - int(plain * len(fits)) :] = False
            index = self._redivided(lengths, fits)
            if num_batches(index, self.buckets) <= self.num_batches:
                break
        source, target = (
            side.replaced(drawn, fits)
            for side, drawn in zip((self.source, self.target), rows, strict=True)
        )
        return dataclasses.replace(self, source=source, target=target, bucket_of=index)

    def _fitting(self, lengths: np.ndarray) -> np.ndarray:
        """Which of the pairs in the batches a bucket holds with other lengths, too."""
        fits: np.ndarray = self.kept & (lengths <= self.buckets[-1].length)
        return fits

    def _redivided(self, lengths: np.ndarray, where: np.ndarray) -> np.ndarray:
        """The buckets of the pairs, some of which have other lengths now."""
        return np.where(where, bucket_of(lengths, self.buckets), self.bucket_of)

    def report(self, batches_per_update: int) -> PipelineReport:
        tokens = [
            int(side.lengths[self.kept].sum() + self.kept.sum())
            for side in (self.source, self.target)
        ]
        plan = self._plan(None)
        positions = sum(bucket.batch_size * bucket.length for bucket, _ in plan)
        return PipelineReport(
            kept=int(self.kept.sum()),
            empty=int((self.bucket_of == -1).sum()),
            too_long=int((self.bucket_of == len(self.buckets)).sum()),
            source_tokens=tokens[0],
            target_tokens=tokens[1],
            batches=-(-len(plan) // batches_per_update) * batches_per_update,
            padding=1 - tokens[1] / positions if positions else 0.0,
            buckets=tuple(
                (bucket.length, bucket.batch_size, int((self.bucket_of == index).sum()))
                for index, bucket in enumerate(self.buckets)
            ),
        )

    def _plan(self, generator: np.random.Generator | None) -> list[tuple[Bucket, np.ndarray]]:
        """The pairs of each batch, in a random order or in a fixed one."""
        plan = []
        for index, bucket in enumerate(self.buckets):
            order = np.flatnonzero(self.bucket_of == index)
            if generator is not None:
                order = generator.permutation(order)
            plan += [
                (bucket, order[start : start + bucket.batch_size])
                for start in range(0, len(order), bucket.batch_size)
            ]
        while len(plan) < self.num_batches:
            fullest = max(range(len(plan)), key=lambda turn: len(plan[turn][1]))
            bucket, members = plan[fullest]
            half = len(members) // 2
            plan[fullest : fullest + 1] = [(bucket, members[:half]), (bucket, members[half:])]
        if generator is not None:
            plan = [plan[turn] for turn in generator.permutation(len(plan))]
        return plan

    def batches(
        self, seed: tuple[int, int] | None, first: int, serving: _Serving
    ) -> Iterator[Batch]:
        """Makes the batches of one epoch, in the order of `seed` or in a fixed one."""
        repeats = serving.repeats
        plan = [
            (Bucket(bucket.length, bucket.batch_size * repeats), members.repeat(repeats))
            for bucket, members in self._plan(None if seed is None else np.random.default_rng(seed))
        ]
        if serving.row_weights:
            batches = self._weighted(plan, first, serving.batches_per_update)
        else:
            batches = itertools.starmap(self._batch, plan[first:])
        return map(serving.own, batches)

    def _weighted(
        self, plan: list[tuple[Bucket, np.ndarray]], first: int, batches_per_update: int
    ) -> Iterator[Batch]:
        """Adds the weight of each row: an update's batches divided by its tokens."""
        nobody = np.zeros(0, np.int64)
        plan = plan + [(plan[-1][0], nobody)] * (-len(plan) % batches_per_update)
        tokens = [int(self.target.lengths_of(members).sum()) + len(members) for _, members in plan]
        for index, (bucket, members) in enumerate(plan[first:], first):
            start = index - index % batches_per_update
            weight = batches_per_update / sum(tokens[start : start + batches_per_update])
            yield (
                *self._batch(bucket, members),
                np.full((bucket.batch_size, 1), weight, np.float32),
            )

    def _batch(self, bucket: Bucket, members: np.ndarray) -> Batch:
        shape = bucket.batch_size, bucket.length
        row = np.arange(len(members))
        source = self.source.rows(members, shape, 0)
        source[row, self.source.lengths_of(members)] = END_ID
        labels = self.target.rows(members, shape, 0)
        labels[row, self.target.lengths_of(members)] = END_ID
        target = self.target.rows(members, shape, 1)
        target[row, 0] = START_ID
        return {"source": source, "target": target}, labels


def _lengths(sides: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]) -> np.ndarray:
    """The positions that each pair takes: its longer side and the end."""
    return np.array(
        [max(len(source), len(target)) + 1 for source, target in zip(*sides, strict=True)]
    )


def _encode(
    pairs: Iterable[Any], tokenizers: TokenizerPair
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Tokenises in large portions, so that the texts are never all in memory."""
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    portion: list[tuple[str, str]] = []

    def flush() -> None:
        for side, tokenizer, texts in zip(
            sides, (tokenizers.source, tokenizers.target), zip(*portion, strict=True), strict=False
        ):
            side.extend(np.array(ids, np.int32) for ids in tokenizer.encode_batch(texts))
        portion.clear()

    for pair in string_pairs(pairs):
        portion.append(pair)
        if len(portion) == _TEXTS_AT_ONCE:
            flush()
    if portion:
        flush()
    return sides
