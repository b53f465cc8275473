"""The few lengths that batches are padded to: given, or fitted to the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

TOKENS_PER_BATCH = 4096
NUM_BUCKETS = 6
MAX_LENGTH = 128

# Fitted lengths are multiples of it: cuDNN's flash attention trains on no odd ones, and vectors of
# processors hold four numbers or more.
_MULTIPLE = 4


@dataclass(frozen=True)
class Bucket:
    """The one shape of a group of pairs of like length."""

    length: int
    batch_size: int


@dataclass(frozen=True)
class Bucketing:
    """How the buckets of a data set follow from the lengths of its pairs.

    The arguments are those of `make_training_dataset`.

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
        if given is not None and (not len(given) or min(given) < 2):
            raise ValueError(
                "Expected bucket lengths of at least 2 (a token and the end); received "
                f"bucket_lengths={tuple(given)}."
            )
        numbers = self.num_buckets, self.tokens_per_batch, self.rows_multiple_of
        if min(numbers) < 1 or self.longest < 2:
            raise ValueError(
                "Expected at least one bucket, a positive size of the batches and room for a token "
                f"and the end; received num_buckets={self.num_buckets}, "
                f"tokens_per_batch={self.tokens_per_batch}, max_length={self.max_length}, "
                f"rows_multiple_of={self.rows_multiple_of}."
            )

    @property
    def longest(self) -> int:
        """Positions that a pair may take at most."""
        if self.max_length is not None:
            return self.max_length
        return MAX_LENGTH if self.bucket_lengths is None else max(self.bucket_lengths)

    def buckets_for(self, lengths: np.ndarray) -> tuple[Bucket, ...]:
        """The buckets, the shortest first.

        Args:
            lengths: The positions that each pair takes; longer ones than `longest` do not count.

        Returns:
            One bucket at least; the last one holds the longest pair that counts.
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
    of as many has fewer positions in an epoch, the rows that fill up each bucket's last batch
    included.

    Args:
        lengths: For each sentence pair the tokens of its longer side, the end token included.
        num_buckets: How many lengths at most. A training step is compiled once for each.
        max_length: Longer pairs do not count.
        tokens_per_batch: Positions of a batch, see `make_training_dataset`.
        rows_multiple_of: See there.

    Returns:
        The lengths, rising. Fewer than `num_buckets` if more would gain nothing. The last one holds
        the longest pair that counts, and is `max_length` if none does.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> from keras_addnorm.data import fit_bucket_lengths
        >>> fit_bucket_lengths([7, 8, 8, 11, 30], num_buckets=2, tokens_per_batch=32)
        (12, 32)
    """
    if min(num_buckets, max_length, tokens_per_batch, rows_multiple_of) < 1:
        raise ValueError(
            f"Expected positive numbers; received num_buckets={num_buckets}, "
            f"max_length={max_length}, tokens_per_batch={tokens_per_batch}, "
            f"rows_multiple_of={rows_multiple_of}."
        )
    found = np.fromiter(lengths, np.int64)
    rounded = np.minimum(-(-found // _MULTIPLE) * _MULTIPLE, max_length)[found <= max_length]
    if not len(rounded):
        return (max_length,)
    sizes, counts = np.unique(rounded, return_counts=True)
    up_to = np.concatenate([[0], np.cumsum(counts)])
    # least[b, j]: positions of the pairs of the j smallest sizes, in b buckets. The last of them
    # begins behind the last_start[b, j] smallest ones.
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


def bucket_of(lengths: np.ndarray, buckets: Sequence[Bucket]) -> np.ndarray:
    """The index of the first bucket that holds each length, or one more than there are."""
    return np.searchsorted([bucket.length for bucket in buckets], lengths)


def num_batches(buckets_of_pairs: np.ndarray, buckets: Sequence[Bucket]) -> int:
    """How many batches it takes, by the index of each pair's bucket."""
    return sum(
        -(-int((buckets_of_pairs == index).sum()) // bucket.batch_size)
        for index, bucket in enumerate(buckets)
    )


def _rows(length: int, tokens_per_batch: int, multiple_of: int) -> int:
    return max(1, tokens_per_batch // length // multiple_of) * multiple_of
