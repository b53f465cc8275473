"""Fitted bucket lengths beside all that could have been chosen."""

import itertools

import numpy as np
import pytest

from keras_addnorm.data import fit_bucket_lengths
from keras_addnorm.data.buckets import Bucket, Bucketing


def positions(lengths, buckets, tokens_per_batch, rows_multiple_of=1):
    """What an epoch computes, counted pair by pair; nothing if a pair has no bucket."""
    shares = {n: max(1, tokens_per_batch // n // rows_multiple_of) for n in buckets}
    members = dict.fromkeys(buckets, 0)
    for length in lengths:
        fitting = [n for n in buckets if n >= length]
        if not fitting:
            return None
        members[min(fitting)] += 1
    rows = {n: share * rows_multiple_of for n, share in shares.items()}
    return sum(-(-members[n] // rows[n]) * rows[n] * n for n in buckets)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("num_buckets", [1, 2, 3, 5])
def test_no_other_lengths_leave_fewer_positions(seed, num_buckets):
    generator = np.random.default_rng(seed)
    lengths = np.minimum(generator.gamma(2.0, 5.0, generator.integers(1, 90)).astype(int) + 2, 35)
    tokens, multiple = int(generator.integers(1, 200)), int(generator.integers(1, 4))
    found = fit_bucket_lengths(
        lengths,
        num_buckets,
        tokens_per_batch=tokens,
        max_length=35,
        rows_multiple_of=multiple,
    )
    candidates = sorted({min(-(-length // 4) * 4, 35) for length in lengths.tolist()})
    costs = [
        (positions(lengths, choice, tokens, multiple), count)
        for count in range(1, num_buckets + 1)
        for choice in itertools.combinations(candidates, count)
    ]
    best = min(cost for cost in costs if cost[0] is not None)
    assert (positions(lengths, found, tokens, multiple), len(found)) == best
    assert set(found) <= set(candidates) and list(found) == sorted(found)


def test_lengths_by_hand():
    # 3 x 12 and 1 x 32 positions; 4 x 32 in one bucket.
    assert fit_bucket_lengths([12, 11, 9, 30], 2, tokens_per_batch=32) == (12, 32)
    assert fit_bucket_lengths([12, 11, 9, 30], 1, tokens_per_batch=32) == (32,)
    # A batch holds all: a second one would be 48 positions more.
    assert fit_bucket_lengths([12, 11, 9, 30], 2, tokens_per_batch=32 * 4) == (32,)
    # More lengths than there are sizes.
    assert fit_bucket_lengths([12, 5], 9, tokens_per_batch=1) == (8, 12)
    assert fit_bucket_lengths(np.array([12, 5]), 9, tokens_per_batch=1) == (8, 12)


def test_what_is_too_long_does_not_count():
    assert fit_bucket_lengths([5, 40], tokens_per_batch=1, max_length=39) == (8,)
    assert fit_bucket_lengths([5, 39], tokens_per_batch=1, max_length=39) == (8, 39)
    assert fit_bucket_lengths([40], max_length=39) == fit_bucket_lengths([], max_length=39) == (39,)


def test_thousands_of_lengths_are_no_trouble():
    lengths = np.random.default_rng(3).integers(2, 4097, 20_000)
    found = fit_bucket_lengths(lengths, 8, max_length=4096, tokens_per_batch=2**16)
    # Equal shares of a uniform distribution: 1 / 16 of a bucket's rows is padding, of eight.
    np.testing.assert_allclose(found, 4096 * np.arange(1, 9) / 8, rtol=0.08)


@pytest.mark.parametrize(
    "wrong", ["num_buckets", "max_length", "tokens_per_batch", "rows_multiple_of"]
)
def test_numbers_are_positive(wrong):
    with pytest.raises(ValueError, match=f"positive numbers. Received: .*{wrong}=0"):
        fit_bucket_lengths([5], **{wrong: 0})


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({}, 128),
        ({"max_length": 200}, 200),
        ({"bucket_lengths": (9, 300, 5)}, 300),
        ({"bucket_lengths": (9, 300, 5), "max_length": 20}, 20),
    ],
)
def test_the_longest_pair(settings, longest):
    assert Bucketing(**settings).longest == longest


def test_given_lengths_are_not_fitted():
    buckets = Bucketing(bucket_lengths=(13, 5, 7), max_length=9, tokens_per_batch=30)
    assert buckets.buckets_for(np.array([2, 3])) == (Bucket(5, 6), Bucket(7, 4), Bucket(9, 3))


def test_fitted_ones_have_rows_that_can_be_shared():
    bucketing = Bucketing(tokens_per_batch=100, rows_multiple_of=3)
    assert bucketing.buckets_for(np.array([5] * 9 + [30])) == (Bucket(8, 12), Bucket(32, 3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bucket_lengths": ()}, r"at least 2 .*bucket_lengths=\(\)"),
        ({"bucket_lengths": (5, 1)}, r"at least 2 .*bucket_lengths=\(5, 1\)"),
        ({"num_buckets": 0}, "at least one bucket.*num_buckets=0"),
        ({"max_length": 1}, "a token and the end.*max_length=1"),
        ({"max_length": 0}, "a token and the end.*max_length=0"),
        ({"rows_multiple_of": 0}, "a positive size.*rows_multiple_of=0"),
        ({"tokens_per_batch": 0}, "a positive size.*tokens_per_batch=0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Bucketing(**settings)
