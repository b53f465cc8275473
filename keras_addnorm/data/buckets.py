"""Bucket lengths that batches are padded to: given, or fitted to the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError

TOKENS_PER_BATCH = 4096
NUM_BUCKETS = 6
MAX_LENGTH = 128

# Fitted lengths are multiples of this: cuDNN's flash attention does not train on odd lengths, and
# vector registers hold four numbers or more.
_MULTIPLE = 4


@dataclass(frozen=True)
class Bucket:
    """The shape of all batches of pairs of similar length."""

    length: int
    batch_size: int


@dataclass(frozen=True)
class Bucketing:
    """How the buckets of a data set follow from the lengths of its pairs.

    The fields are keyword arguments of `make_training_dataset`, which documents them.

    Raises:
        ValueError: If a number is not positive, or there is no length.
    """

    num_buckets: int = NUM_BUCKETS
    bucket_lengths: Sequence[int] | None = None
    max_length: int | None = None
    tokens_per_batch: int = TOKENS_PER_BATCH
    rows_multiple_of: int = 1

    def __post_init__(self) -> None:
        given = self.bucket_lengths
        if given is not None:
            are_lengths = isinstance(given, Iterable) and all(is_whole(size, 2) for size in given)
            if not are_lengths or not len(given):
                raise ArgumentError(
                    expected="bucket lengths, ints of at least 2 (a token and the end)",
                    bucket_lengths=tuple(given) if isinstance(given, Iterable) else given,
                )
        numbers = self.num_buckets, self.tokens_per_batch, self.rows_multiple_of
        fits = self.max_length is None or is_whole(self.max_length, 2)
        if not fits or not all(is_whole(number, 1) for number in numbers):
            raise ArgumentError(
                expected="at least one bucket, a positive size of the batches and room for a "
                "token and the end, as ints",
                num_buckets=self.num_buckets,
                tokens_per_batch=self.tokens_per_batch,
                max_length=self.max_length,
                rows_multiple_of=self.rows_multiple_of,
            )

    @property
    def longest(self) -> int:
        """The most positions that a pair may take."""
        if self.max_length is not None:
            return self.max_length
        return MAX_LENGTH if self.bucket_lengths is None else max(self.bucket_lengths)

    def buckets_for(self, lengths: np.ndarray) -> tuple[Bucket, ...]:
        """Chooses the buckets for pairs of the given lengths.

        Args:
            lengths: The positions that each pair takes; those above `longest` are ignored.

        Returns:
            The buckets, the shortest first; at least one. The last one holds the longest pair that
            is not ignored.
        """
        if self.bucket_lengths is None:
            chosen: Iterable[int] = fit_bucket_lengths(
                lengths,
                self.num_buckets,
                max_length=self.longest,
                tokens_per_batch=self.tokens_per_batch,
                rows_multiple_of=self.rows_multiple_of,
            )
        else:
            shorter = {length for length in self.bucket_lengths if length < self.longest}
            chosen = sorted(shorter | {self.longest})
        rows = [_rows(length, self.tokens_per_batch, self.rows_multiple_of) for length in chosen]
        return tuple(map(Bucket, chosen, rows))


def fit_bucket_lengths(
    lengths: Iterable[int],
    num_buckets: int = NUM_BUCKETS,
    *,
    max_length: int = MAX_LENGTH,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    rows_multiple_of: int = 1,
) -> tuple[int, ...]:
    """Chooses the bucket lengths that leave the least padding.

    Dynamic programming over the lengths that occur, rounded up to multiples of 4: no other choice
    of as many lengths has fewer positions in an epoch. The rows that fill up the last batch of each
    bucket are counted.

    Args:
        lengths: For each sentence pair the tokens of its longer side, the end token included.
        num_buckets: The most lengths to choose. A training step is compiled once for each length.
        max_length: Longer pairs are ignored.
        tokens_per_batch: Positions of a batch: a bucket of length L has `tokens_per_batch // L`
            rows, and at least one.
        rows_multiple_of: The number of rows of each batch is a multiple of this number.

    Returns:
        The lengths, rising. Fewer than `num_buckets` if more would gain nothing. The last one holds
        the longest pair that is not ignored; it is `max_length` if all are.

    Raises:
        ValueError: If a number is not a positive int, or a length none of 0 or more.

    Example:
        >>> from keras_addnorm.data import fit_bucket_lengths
        >>> fit_bucket_lengths([7, 8, 8, 11, 30], num_buckets=2, tokens_per_batch=32)
        (12, 32)
    """
    numbers = num_buckets, max_length, tokens_per_batch, rows_multiple_of
    if not all(is_whole(number, 1) for number in numbers):
        raise ArgumentError(
            expected="positive numbers",
            num_buckets=num_buckets,
            max_length=max_length,
            tokens_per_batch=tokens_per_batch,
            rows_multiple_of=rows_multiple_of,
        )
    found = _checked_lengths(lengths)
    found, times = np.unique(found, return_counts=True)
    found = found.astype(np.int64)
    rounded = np.minimum(-(-found // _MULTIPLE) * _MULTIPLE, max_length)[found <= max_length]
    if not len(rounded):
        return (max_length,)
    sizes, places = np.unique(rounded, return_inverse=True)
    counts = np.bincount(places, times[found <= max_length]).astype(np.int64)
    up_to = np.concatenate([[0], np.cumsum(counts)])
    # least[b, j]: the fewest positions of the pairs of the j smallest sizes in b buckets. The last
    # of these buckets holds the sizes from last_start[b, j] on.
    least = np.full((num_buckets + 1, len(sizes) + 1), np.inf)
    least[0, 0] = 0
    last_start = np.zeros(least.shape, np.int64)
    for j, size in enumerate(sizes.tolist(), 1):
        rows = _rows(size, tokens_per_batch, rows_multiple_of)
        last = -(-(up_to[j] - up_to[:j]) // rows) * rows * size
        total = least[:-1, :j] + last
        last_start[1:, j] = total.argmin(1)
        least[1:, j] = total.min(1)
    end = len(sizes)
    chosen = []
    for bucket in range(int(least[:, end].argmin()), 0, -1):
        chosen.append(int(sizes[end - 1]))
        end = last_start[bucket, end]
    return tuple(reversed(chosen))


def _checked_lengths(lengths: Iterable[int]) -> np.ndarray:
    try:
        values = np.asarray(lengths if isinstance(lengths, np.ndarray) else [*lengths])
    except (TypeError, ValueError):
        values = np.zeros((), object)
    are_lengths = values.ndim == 1 and values.dtype.kind in "iu" and values.min(initial=0) >= 0
    if values.shape != (0,) and not are_lengths:
        raise ArgumentError(expected="the lengths of pairs, ints of 0 or more", value=lengths)
    return values


def bucket_of(lengths: np.ndarray | int, buckets: Sequence[Bucket]) -> np.ndarray:
    """The index of the shortest bucket that holds each length; `len(buckets)` if none does.

    It is of the smallest type that holds these, and -1.
    """
    index = np.zeros(np.shape(lengths), np.min_scalar_type(-len(buckets) - 1))
    for bucket in buckets:
        index += lengths > bucket.length
    return index


def num_batches(buckets_of_pairs: np.ndarray, buckets: Sequence[Bucket]) -> int:
    """The number of batches that the pairs fill, given the index of each pair's bucket."""
    return sum(
        -(-int((buckets_of_pairs == index).sum()) // bucket.batch_size)
        for index, bucket in enumerate(buckets)
    )


def _rows(length: int, tokens_per_batch: int, multiple_of: int) -> int:
    return max(1, tokens_per_batch // length // multiple_of) * multiple_of
