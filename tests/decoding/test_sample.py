import itertools

import numpy as np
import pytest
from search_reference import all_sequences, log_p_of, random_table, search_all

from keras_addnorm.decoding import Greedy, Sample, tensor_ops
from keras_addnorm.decoding.decoder import SpecialIds

V, L = 5, 3
IDS = SpecialIds(pad_id=0, start_id=1, end_id=2)
DRAWS = 3000


def distribution(table_row, keep):
    """Probability of every sequence, when `keep(p)` says what is drawn from at each step."""
    found = {}
    for sequence in all_sequences(L, IDS, V):
        total = 1.0
        for i, token in enumerate(sequence):
            own = np.array([log_p_of(table_row, (*sequence[:i], t)) for t in range(V)])
            p = np.exp(own - log_p_of(table_row, sequence[:i]))
            p[[IDS.pad_id, IDS.start_id]] = 0.0
            p = keep(p)
            total *= p[token] / p.sum()
        found[sequence] = total
    return found


def tempered(temperature):
    return lambda p: p ** (1 / temperature)


def top_k(k):
    return lambda p: np.where(p >= np.sort(p)[-k], p, 0.0)


def top_p(share):
    def keep(p):
        order = np.argsort(-p)
        total, kept = 0.0, np.zeros(len(p))
        for token in order:
            if total < share * p.sum():
                kept[token] = p[token]
            total += p[token]
        return kept

    return keep


CASES = {
    "plain": ({}, lambda p: p),
    "cold": ({"temperature": 0.5}, tempered(0.5)),
    "hot": ({"temperature": 3.0}, tempered(3.0)),
    "top_k": ({"top_k": 2}, top_k(2)),
    "top_k_of_all": ({"top_k": 99}, lambda p: p),
    "top_p": ({"top_p": 0.7}, top_p(0.7)),
    "top_p_of_all": ({"top_p": 1.0}, lambda p: p),
    "both": (
        {"temperature": 1.7, "top_k": 2, "top_p": 0.6},
        lambda p: top_p(0.6)(top_k(2)(tempered(1.7)(p))),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_sequences_are_drawn_with_their_probabilities(case):
    options, keep = CASES[case]
    table = random_table(1, V, L, seed=31, scale=1.0)
    found = search_all(Sample(num_return=DRAWS, seed=5, **options), table, L, IDS)
    drawn = [tuple(t for t in row if t != IDS.pad_id) for row in found.ids[0].tolist()]
    expected = distribution(table[0], keep)
    possible = {sequence for sequence, p in expected.items() if p > 0}
    assert set(drawn) <= possible
    squares = sum(
        (drawn.count(s) - DRAWS * expected[s]) ** 2 / (DRAWS * expected[s]) for s in possible
    )
    # Chi-squared has a mean of (number - 1) and a deviation of its root of twice that.
    freedom = len(possible) - 1
    assert squares < freedom + 4 * np.sqrt(2 * freedom)
    # Best first, with the model's own log-probabilities.
    own = [log_p_of(table[0], s) for s in drawn]
    np.testing.assert_allclose(found.scores[0], own, atol=1e-4)
    assert (np.diff(found.scores[0]) <= 0).all()


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}])
def test_the_narrowest_choice_is_greedy_search(options):
    table = random_table(9, V, L, seed=32)
    greedy = search_all(Greedy(0.6), table, L, IDS)
    sample = search_all(Sample(length_penalty=0.6, **options), table, L, IDS)
    np.testing.assert_array_equal(sample.ids, greedy.ids)
    np.testing.assert_allclose(sample.scores, greedy.scores, rtol=1e-5)


def test_of_equals_the_smaller_id_is_kept():
    table = np.full((1, 31, V), np.log(1 / V))
    ids = SpecialIds(pad_id=0, start_id=1, end_id=9)
    two = search_all(Sample(top_k=2, num_return=50), table, L, ids)
    assert set(two.ids.flat) == {2, 3}
    assert set(search_all(Sample(top_p=0.4, num_return=50), table, L, ids).ids.flat) == {2, 3}


def sources(batch_size):
    return np.random.default_rng(33).integers(3, 9, (batch_size, 4))


def test_seeds_and_draws_and_sentences_tell_draws_apart():
    table = np.repeat(random_table(1, V, L, seed=34, scale=0.5), 2, axis=0)
    draws = {}
    for seed, start in itertools.product((0, 1, -7), (0, 2)):
        found = search_all(
            Sample(num_return=20, seed=seed),
            table,
            L,
            IDS,
            source_ids=sources(4)[start : start + 2],
        )
        draws[seed, start] = found.scores
    values = [tuple(row) for scores in draws.values() for row in scores.tolist()]
    assert len(set(values)) == len(values) == 12
    assert all(len(set(row)) > 2 for row in values)


def test_a_sentence_is_drawn_alike_wherever_it_stands():
    table = random_table(1, V, L, seed=35, scale=0.5)
    strategy = Sample(num_return=7, seed=3)
    together = search_all(
        strategy,
        np.repeat(table, 4, axis=0),
        L,
        IDS,
        source_ids=np.pad(sources(4), ((0, 0), (0, 3))),
    )
    again = search_all(strategy, np.repeat(table, 4, axis=0), L, IDS, source_ids=sources(4))
    np.testing.assert_array_equal(together.ids, again.ids)
    for i in (2, 0):
        alone = search_all(strategy, table, L, IDS, source_ids=sources(4)[i : i + 1])
        np.testing.assert_array_equal(alone.ids[0], together.ids[i])
        np.testing.assert_array_equal(alone.scores[0], together.scores[i])
    fewer = search_all(Sample(num_return=1, seed=3), table, L, IDS, source_ids=sources(1))
    assert fewer.ids[0, 0].tolist() in together.ids[0].tolist()


# The numbers behind it


def mixed(x):
    """The published function, in integers without a limit."""
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    return x ^ x >> 16


def test_keys_are_the_published_hash():
    keys, numbers = np.array([0, 1, -5, 2**31 - 1], "int32"), np.array([7, 0, -1, 10**9], "int32")
    found = np.asarray(tensor_ops.spread(keys, numbers)).astype("int64") % 2**32
    golden = 0x9E3779B9
    expected = [
        mixed((k % 2**32 + mixed(n * golden % 2**32)) % 2**32)
        for k, n in zip(keys.tolist(), numbers.tolist(), strict=True)
    ]
    assert found.tolist() == expected


def test_gumbel_noise_has_the_gumbel_distribution():
    draws = np.sort(np.asarray(tensor_ops.gumbel(np.arange(20_000, dtype="int32"))))
    assert np.isfinite(draws).all()
    expected = np.exp(-np.exp(-draws))
    observed = (np.arange(20_000) + 0.5) / 20_000
    # Kolmogorov and Smirnov: below 1.95 / sqrt(n) but once in a thousand.
    assert np.abs(expected - observed).max() < 1.95 / np.sqrt(20_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "temperature has to be at least 1e-06.*temperature=0.*Greedy"),
        ({"temperature": 1e-30}, "temperature=1e-30"),
        ({"temperature": 1e39}, "temperature=1e[+]39"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"temperature": float("inf")}, "temperature=inf"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_k": 0}, "Expected an int top_k >= 1. Received: 0"),
        ({"top_p": 0.0}, "Expected 0 < top_p <= 1. Received: 0.0"),
        ({"top_p": 1.1}, "Received: 1.1"),
        ({"num_return": 0}, "Expected an int num_return >= 1. Received: 0"),
        ({"seed": 2**31}, "Expected an int32. Received: 2147483648"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Sample(**options)
