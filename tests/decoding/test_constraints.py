import itertools
import math

import numpy as np
import pytest
from search_reference import check_found, log_p_of, n_best, random_table, search_all, table_of

from keras_addnorm.decoding import (
    Beam,
    DiverseBeam,
    ForbiddenTokens,
    Greedy,
    MaxLength,
    MinLength,
    NoRepeatNgram,
    Prefix,
    Sample,
    constraints,
)
from keras_addnorm.decoding.decoder import SpecialIds

# Four words and an end: 341 sequences.
V, L = 7, 4
IDS = SpecialIds(pad_id=0, start_id=1, end_id=2)
END = 2
S = 3  # number of source tokens


def fulfils(sequence, rule, max_length=L):
    """Say of a whole sequence whether it keeps a rule; the rules themselves look ahead."""
    has_ended, length = sequence[-1] == END, len(sequence)
    match rule:
        case MinLength(b, a):
            return not has_ended or length >= math.floor(a * S + b)
        case MaxLength(b, a):
            limit = max(1, math.floor(a * S + b))
            return length < limit or (length == limit and has_ended)
        case NoRepeatNgram(n):
            ngrams = [sequence[i : i + n] for i in range(length - n + 1)]
            return len(set(ngrams)) == len(ngrams)
        case ForbiddenTokens(tokens):
            return not set(sequence) & set(tokens)


RULES = {
    "min": (MinLength(3),),
    "min_factor": (MinLength(1, 0.7),),
    "max": (MaxLength(2),),
    "max_factor": (MaxLength(source_factor=1.0),),
    "max_of_nothing": (MaxLength(source_factor=0.1),),
    "no_repeat_1": (NoRepeatNgram(1),),
    "no_repeat_2": (NoRepeatNgram(2),),
    "no_repeat_3": (NoRepeatNgram(3),),
    "no_repeat_9": (NoRepeatNgram(9),),
    "forbidden": (ForbiddenTokens((3, 6)),),
    "no_end": (ForbiddenTokens((END,)),),
    "all": (MinLength(2), MaxLength(3), NoRepeatNgram(1), ForbiddenTokens([5])),
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_a_wide_beam_finds_the_n_best_of_what_is_allowed(rules):
    table = random_table(2, V, L, seed=21, scale=1.0)
    found = search_all(Beam(4**4, 0.6, num_return=9), table, L, IDS, constraints=rules)
    for row, sequences, scores in zip(table, found.ids, found.scores, strict=True):
        expected = n_best(
            row,
            L,
            IDS,
            lambda n: ((5 + n) / 6) ** 0.6,
            9,
            lambda sequence: all(fulfils(sequence, rule) for rule in rules),
        )
        assert expected
        check_found(sequences, scores, expected, L, IDS)


STRATEGIES = [
    Greedy(),
    Beam(3, num_return=3),
    DiverseBeam(4, 2, num_return=4),
    Sample(num_return=5),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_rules_and_scores_hold_in_every_strategy(strategy):
    rules = (MinLength(2), MaxLength(4), NoRepeatNgram(2), ForbiddenTokens((4,)))
    table = random_table(11, V, 5, seed=22, scale=1.0)
    free = search_all(strategy, table, 5, IDS)
    found = search_all(strategy, table, 5, IDS, constraints=rules)
    assert (found.ids != free.ids).any()
    for row, sequences, scores in zip(table, found.ids, found.scores, strict=True):
        for sequence, score in zip(sequences.tolist(), scores, strict=True):
            own = tuple(token for token in sequence if token != IDS.pad_id)
            assert all(fulfils(own, rule, 5) for rule in rules)
            assert score == pytest.approx(log_p_of(row, own), abs=1e-4)


def test_greedy_search_takes_the_best_of_what_is_allowed_at_each_step():
    table = random_table(13, V, L, seed=23, scale=1.0)
    rules = (MinLength(3), NoRepeatNgram(1))
    found = search_all(Greedy(), table, L, IDS, constraints=rules)
    for row, sequence in zip(table, found.ids[:, 0].tolist(), strict=True):
        prefix = ()
        while len(prefix) < L and END not in prefix:
            nexts = [(*prefix, token) for token in range(2, V)]
            nexts = [s for s in nexts if all(fulfils(s, rule) for rule in rules)]
            prefix = max(nexts, key=lambda s: log_p_of(row, s))
        assert tuple(sequence[: len(prefix)]) == prefix


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_a_dead_end_is_given_up(strategy):
    """One word, no repetition, no end before the third token: the second cannot be chosen."""
    table = random_table(2, V, L, seed=24)
    rules = (ForbiddenTokens((4, 5, 6)), NoRepeatNgram(1), MinLength(3))
    found = search_all(strategy, table, L, IDS, constraints=rules, is_empty=[False, True])
    assert (found.ids == IDS.pad_id).all()
    assert (found.scores[0] == -np.inf).all()
    assert found.scores[1, 0] == 0.0


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_the_prefix_is_forced_and_scored_and_no_rule_holds_in_it(strategy):
    table = random_table(3, V, L, seed=25, scale=1.0)
    prefix = np.array([[5, 5, 0], [6, 0, 0], [0, 0, 0]], "int32")
    rules = (NoRepeatNgram(1), ForbiddenTokens((6,)))
    found = search_all(strategy, table, L, IDS, prefix=Prefix(prefix), constraints=rules)
    free = search_all(strategy, table, L, IDS, constraints=rules)
    assert (found.ids[0, :, :2] == 5).all()
    assert (found.ids[1, :, 0] == 6).all()
    np.testing.assert_array_equal(found.ids[2], free.ids[2])
    for row, sequences, scores in zip(table, found.ids, found.scores, strict=True):
        for sequence, score in zip(sequences.tolist(), scores, strict=True):
            own = tuple(token for token in sequence if token != IDS.pad_id)
            assert score == pytest.approx(log_p_of(row, own), abs=1e-4)


def test_a_wide_beam_finds_the_best_ends_of_a_prefix():
    table = random_table(1, V, L, seed=26, scale=1.0)
    found = search_all(Beam(4**3, num_return=5), table, L, IDS, prefix=Prefix([[3, 6]]))
    expected = n_best(table[0], L, IDS, lambda n: 1.0, 5, lambda s: s[:2] == (3, 6))
    check_found(found.ids[0], found.scores[0], expected, L, IDS)


def test_a_factor_means_each_sentences_own_length():
    endless = table_of({(3,) * n: {3: 0.9, END: 0.1} for n in range(6)}, V, 6)
    sources = np.array([[4, 2, 0, 0], [4, 4, 4, 2]])
    found = search_all(
        Greedy(),
        np.concatenate([endless, endless]),
        6,
        IDS,
        source_ids=sources,
        constraints=(MaxLength(1, 1.0),),
    )
    assert found.ids[:, 0].tolist() == [[3, 3, 2, 0, 0, 0], [3, 3, 3, 3, 2, 0]]


def test_a_limit_is_rounded_down_as_on_paper():
    # In float32, 4.2 * 15 is 62.999996.
    for index, may_go_on in ((61, True), (62, False)):
        view = constraints.View(np.zeros((1, 70)), index, np.array([15]), V, IDS)
        allowed = np.asarray(MaxLength(source_factor=4.2).allowed(view))
        np.testing.assert_array_equal(allowed, [[may_go_on or t == END for t in range(V)]])


@pytest.mark.parametrize("factor", [1e9, 3e38])
def test_a_limit_that_no_int32_holds_is_far_away(factor):
    """Cast as it was, it was the smallest int32: outputs ended at once."""
    view = constraints.View(np.zeros((1, 9)), 4, np.array([7]), V, IDS)
    assert np.asarray(MaxLength(source_factor=factor).allowed(view)).all()
    is_end = np.arange(V) == END
    allowed = np.asarray(MinLength(source_factor=factor).allowed(view))
    np.testing.assert_array_equal(np.broadcast_to(allowed, (1, V)), [~is_end])


@pytest.mark.parametrize("rule", list(itertools.chain.from_iterable(RULES.values())), ids=str)
def test_the_table(rule):
    assert constraints.get(rule) is rule
    assert constraints.get(constraints.serialize(rule)) == rule
    assert hash(constraints.get(constraints.serialize(rule))) == hash(rule)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MinLength(), "needs a number of tokens, or a factor.*length=0, source_factor=0.0"),
        (lambda: MinLength(-1), "Received: length=-1"),
        (lambda: MaxLength(3, -0.5), "source_factor=-0.5"),
        (lambda: MaxLength(3, float("nan")), "source_factor=nan"),
        (lambda: NoRepeatNgram(0), "Expected an int size >= 1. Received: 0"),
        (lambda: NoRepeatNgram(1.5), "Received: 1.5"),
        (lambda: ForbiddenTokens(()), "Nothing is forbidden"),
        (lambda: MinLength(6).check(V, 5), "longer than the longest.*6, max_length=5"),
        (lambda: ForbiddenTokens((7,)).check(V, 5), "ids from 0 to 6. Received: \\(7,\\)"),
        (lambda: constraints.get("no_repeat"), "no such constraint.*no_repeat_ngram"),
    ],
)
def test_bad_rules_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
