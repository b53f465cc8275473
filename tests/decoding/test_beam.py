import dataclasses
import functools

import numpy as np
import pytest
from keras import ops
from search_reference import (
    beam_reference,
    check_found,
    child,
    n_best,
    padded,
    random_table,
    search_all,
    sharp_table,
    step_on,
    table_of,
)

from keras_addnorm.decoding import (
    AveragePenalty,
    Beam,
    DiverseBeam,
    Greedy,
    LengthPenalty,
    MaxLength,
    MinLength,
    NoRepeatNgram,
    Prefix,
)
from keras_addnorm.decoding.decoder import SpecialIds

V, L = 5, 5
USUAL = SpecialIds(pad_id=0, start_id=1, end_id=2)
OUTSIDE = SpecialIds(pad_id=5, start_id=6, end_id=2)
END, A, B = 2, 3, 4


@dataclasses.dataclass(frozen=True)
class Hill(LengthPenalty):
    """Rises and falls: outputs of four tokens have the advantage."""

    def divisor(self, length):
        return 1.0 + 9.0 * ops.exp(-4.0 * (ops.cast(length, "float32") - 4.0) ** 2)


PENALTIES = {
    0.0: lambda n: 1.0,
    1.3: lambda n: ((5 + n) / 6) ** 1.3,
    -0.7: lambda n: ((5 + n) / 6) ** -0.7,
    AveragePenalty(0.9): lambda n: n**0.9,
    Hill(): lambda n: 1 + 9 * np.exp(-4 * (n - 4.0) ** 2),
}


@pytest.mark.parametrize("penalty", [0.0, AveragePenalty(0.9)], ids=str)
@pytest.mark.parametrize("ids", [USUAL, OUTSIDE], ids=["usual", "outside"])
def test_a_wide_beam_finds_the_n_best_of_all_sequences(ids, penalty):
    table = random_table(2, V, L, seed=11)
    strategy = Beam(V**4, penalty, num_return=23)
    found = search_all(strategy, table, L, ids)
    assert found.ids.shape == (2, 23, L)
    for row, sequences, scores in zip(table, found.ids, found.scores, strict=True):
        check_found(sequences, scores, n_best(row, L, ids, PENALTIES[penalty], 23), L, ids)


def test_what_does_not_exist_is_padding_and_minus_infinity():
    """Of length 2 there are only: END, A END, A A, A B, B END, B A, B B."""
    table = random_table(2, V, 2, seed=4)
    found = search_all(Beam(9, num_return=9), table, 2, USUAL, is_empty=[False, True])
    expected = n_best(table[0], 2, USUAL, PENALTIES[0.0], 9)
    assert len(expected) == 7
    check_found(found.ids[0], found.scores[0], expected, 2, USUAL)
    # Nothing to decode: found once, and for certain.
    check_found(found.ids[1], found.scores[1], [(0.0, ())], 2, USUAL)


@pytest.mark.parametrize("early", [True, False, "current_length"])
@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_a_narrow_beam_does_what_plain_python_does(penalty, early):
    """And with early_stopping=False it finds what a search that never stops finds."""
    table = random_table(40, V, L, seed=12, scale=1.5)
    divisor = PENALTIES[penalty]
    found = search_all(Beam(3, penalty, num_return=2, early_stopping=early), table, L, USUAL)
    for row, sequences, scores in zip(table, found.ids, found.scores, strict=True):
        expected = beam_reference(row, L, USUAL, divisor, num_beams=3, count=2, early=early)
        check_found(sequences, scores, expected, L, USUAL)


def test_stopping_early_can_miss_what_the_bound_waits_for():
    # Two have finished after two steps: END (0.3) and A END (0.7 * 0.3). A A END has a higher
    # score, divided by its length: log(0.7 * 0.7) / 3.
    table = table_of({(): {END: 0.3, A: 0.7}, (A,): {END: 0.3, A: 0.7}, (A, A): {END: 1.0}}, V, L)
    waiting = Beam(2, "average", early_stopping=False)
    early = Beam(2, "average", early_stopping=True)
    assert search_all(early, table, L, USUAL).ids[0, 0].tolist() == [A, END, 0, 0, 0]
    found = search_all(waiting, table, L, USUAL)
    assert found.ids[0, 0].tolist() == [A, A, END, 0, 0]
    assert found.scores[0, 0] == pytest.approx(np.log(0.49) / 3, abs=1e-5)


def test_the_current_length_is_a_rule_between_the_two():
    """By hand, with scores that are divided by the length."""
    at_its_length = Beam(2, "average", early_stopping="current_length")
    # As above: A A has log 0.49 / 2 when two have finished, more than END, the worse of them.
    table = table_of({(): {END: 0.3, A: 0.7}, (A,): {END: 0.3, A: 0.7}, (A, A): {END: 1.0}}, V, L)
    found = search_all(at_its_length, table, L, USUAL)
    assert found.ids[0, 0].tolist() == [A, A, END, 0, 0]
    # B B has log 0.1 / 2, less than END, log 0.5, the worse of the two that have finished. It could
    # still become B B B B END, log 0.1 / 5, which is more than A END, log 0.36 / 2.
    going_on = {(B,) * n: {B: 1.0} for n in range(1, 4)} | {(B,) * 4: {END: 1.0}}
    table = table_of({(): {END: 0.5, A: 0.4, B: 0.1}, (A,): {END: 0.9, A: 0.1}, **going_on}, V, L)
    found = search_all(at_its_length, table, L, USUAL)
    assert found.ids[0, 0].tolist() == [A, END, 0, 0, 0]
    found = search_all(Beam(2, "average", early_stopping=False), table, L, USUAL)
    assert found.ids[0, 0].tolist() == [B, B, B, B, END]


def test_an_unknown_stopping_rule_is_named():
    for strategy in (Beam, DiverseBeam):
        with pytest.raises(ValueError, match=r"True, False, 'current_length'\. Received: 'never'"):
            strategy(early_stopping="never")


@pytest.mark.parametrize("early", [True, False, "current_length"])
def test_one_search_finds_all_that_a_narrower_one_returns(early):
    wide, narrow = (Beam(3, 0.6, number, early_stopping=early) for number in (3, 1))
    table = random_table(20, V, L, seed=13, scale=1.5)
    three, one = search_all(wide, table, L, USUAL), search_all(narrow, table, L, USUAL)
    np.testing.assert_array_equal(three.ids[:, :1], one.ids)
    np.testing.assert_array_equal(three.scores[:, :1], one.scores)


@pytest.mark.parametrize(
    ("num_return", "num_steps"),
    # END is the best for certain once A has cost more: after one step. The second best is A END,
    # found in the second step; nothing better can come, since A A has 0.01 by then.
    [(1, 1), (2, 2), (3, 5)],
)
def test_the_bound_stops_as_soon_as_the_result_is_certain(num_return, num_steps):
    going_on = {(A,) * n: {A: 0.9, B: 0.1} for n in range(2, L)}
    table = table_of({(): {END: 0.9, A: 0.1}, (A,): {END: 0.9, A: 0.1}, **going_on}, V, L)
    steps = []
    step = step_on(table)

    def counted(tokens, index, cache):
        steps.append(int(index))
        return step(tokens, index, cache)

    strategy = Beam(4, num_return=num_return)
    search_all(strategy, table, L, USUAL, step=counted)
    assert steps == list(range(num_steps))
    # A search for four of which as many are looked at stops at the same time.
    steps.clear()
    strategy = Beam(4, num_return=4)
    search_all(strategy, table, L, USUAL, step=counted, num_needed=np.int32(num_return))
    assert steps == list(range(num_steps))


# The best that a beam of this width sees


DIVISORS = {
    **PENALTIES,
    0.6: lambda n: ((5 + n) / 6) ** 0.6,
    3.0: lambda n: ((5 + n) / 6) ** 3.0,
    AveragePenalty(): lambda n: n,
    AveragePenalty(-1.0): lambda n: 1 / n,
}
# Rules, and what plain Python makes of them.
RULES = {
    "none": ({}, lambda prefix, token: True),
    "min_length": (
        {"constraints": (MinLength(4),)},
        lambda prefix, token: token != END or len(prefix) >= 3,
    ),
    "max_length": (
        {"constraints": (MaxLength(3),)},
        lambda prefix, token: token == END or len(prefix) < 2,
    ),
    "ngrams": (
        {"constraints": (NoRepeatNgram(1),)},
        lambda prefix, token: token not in prefix,
    ),
    "prefix": (
        {"prefix": Prefix([A, B])},
        lambda prefix, token: len(prefix) >= 2 or token == (A, B)[len(prefix)],
    ),
}


@pytest.mark.parametrize(
    ("penalty", "rule", "num_return", "groups"),
    [
        *((penalty, "none", 1, 1) for penalty in DIVISORS),
        *((penalty, "none", 3, 1) for penalty in (0.0, 0.6, Hill())),
        *((0.6, rule, 2, 1) for rule in RULES if rule != "none"),
        *((0.6, "none", 2, 2), (Hill(), "min_length", 3, 2)),
    ],
    ids=str,
)
def test_the_default_finds_the_best_that_a_beam_sees(penalty, rule, num_return, groups):
    """Score by score that of a search in plain Python that never stops, on sharp languages."""
    table, _ = sharp_table(29, V, L, USUAL, seed=21)
    options, may_follow = RULES[rule]
    strategy = Beam(3, penalty, num_return)
    if groups > 1:
        strategy = DiverseBeam(3 * groups, groups, 0.5, penalty, num_return)
    found = search_all(strategy, table, L, USUAL, **options)
    for row, sequences, scores in zip(table, found.ids, found.scores, strict=True):
        expected = beam_reference(
            row,
            L,
            USUAL,
            DIVISORS[penalty],
            **{"num_beams": 3, "count": num_return, "early": False, "may_follow": may_follow},
            **({"num_groups": groups, "diversity": 0.5} if groups > 1 else {}),
        )
        check_found(sequences, scores, expected, L, USUAL)


def test_a_bonus_of_scores_does_not_stop_a_search_too_soon():
    """As that of a coverage penalty: what the tokens so far have read costs."""
    table, _ = sharp_table(29, V, L, USUAL, seed=22)
    costs = -np.random.default_rng(3).exponential(size=table.shape[:2]).astype("float32")
    flat = ops.convert_to_tensor(costs.reshape(-1))

    def score_bonus(cache):
        return ops.take(flat, cache.rows["sentence"] * table.shape[1] + cache.rows["node"], axis=0)

    found = search_all(Beam(3, 0.6, 2), table, L, USUAL, score_bonus=score_bonus)
    for row, cost, sequences, scores in zip(table, costs, found.ids, found.scores, strict=True):

        def bonus(tokens, cost=cost):
            return cost[functools.reduce(lambda node, t: child(node, t, V), tokens, 0)]

        options = {"num_beams": 3, "count": 2, "early": False, "bonus": bonus}
        check_found(
            sequences,
            scores,
            beam_reference(row, L, USUAL, DIVISORS[0.6], **options),
            L,
            USUAL,
        )


@pytest.mark.parametrize("penalty", [0.0, 0.6, AveragePenalty()], ids=str)
def test_only_a_beam_that_stops_early_is_worse_than_greedy_search_here(penalty):
    """The one good sequence is never dropped here; two junk ends come before its own."""
    table, sequences = sharp_table(97, V, 6, USUAL, seed=23)
    greedy = search_all(Greedy(penalty), table, 6, USUAL)
    for ids, sequence in zip(greedy.ids[:, 0], sequences, strict=True):
        assert ids.tolist() == padded(sequence, 6, USUAL)
    best = search_all(Beam(2, penalty), table, 6, USUAL).scores
    assert (best >= greedy.scores - 1e-5).all()
    early = search_all(Beam(2, penalty, early_stopping=True), table, 6, USUAL).scores
    assert (early < greedy.scores - 1e-2).sum() >= 3


# Diverse beam search


@pytest.mark.parametrize("early", [True, False, "current_length"])
@pytest.mark.parametrize(("groups", "diversity"), [(2, 0.7), (3, 2.5), (6, 0.4)])
def test_diverse_beam_does_what_plain_python_does(groups, diversity, early):
    table = random_table(20, V, L, seed=13, scale=1.5)
    strategy = DiverseBeam(6, groups, diversity, 1.3, num_return=5, early_stopping=early)
    found = search_all(strategy, table, L, USUAL)
    divisor = PENALTIES[1.3]
    options = {"num_beams": 6 // groups, "num_groups": groups, "diversity": diversity}
    for row, sequences, scores in zip(table, found.ids, found.scores, strict=True):
        expected = beam_reference(row, L, USUAL, divisor, **options, count=5, early=early)
        scores_only = [score for score, _ in expected]
        np.testing.assert_allclose(scores[: len(expected)], scores_only, rtol=1e-5)
        own = [tuple(t for t in s if t != USUAL.pad_id) for s in sequences.tolist()]
        assert own == [sequence for _, sequence in expected]


def test_one_group_is_beam_search():
    table = random_table(7, V, L, seed=14)
    one = search_all(DiverseBeam(3, 1, 0.9, 0.6, num_return=3), table, L, USUAL)
    beam = search_all(Beam(3, 0.6, num_return=3), table, L, USUAL)
    np.testing.assert_array_equal(one.ids, beam.ids)
    np.testing.assert_array_equal(one.scores, beam.scores)


def test_a_group_avoids_the_tokens_of_the_group_before_it():
    table = table_of({(): {A: 0.6, B: 0.4}, (A,): {END: 1.0}, (B,): {END: 1.0}}, V, 2)
    alike = search_all(DiverseBeam(2, 2, 0.3, num_return=2), table, 2, USUAL)
    assert alike.ids[0].tolist() == [[A, END], [A, END]]
    # log 0.6 - log 0.4 = 0.405: from there on the second group takes the other word.
    apart = search_all(DiverseBeam(2, 2, 0.5, num_return=2), table, 2, USUAL)
    assert apart.ids[0].tolist() == [[A, END], [B, END]]
    np.testing.assert_allclose(apart.scores[0], np.log([0.6, 0.4]), rtol=1e-5)


# Logits that are no numbers


@pytest.mark.parametrize("strategy", [Greedy(), Beam(2), DiverseBeam(4, 2)], ids=str)
def test_the_first_bad_step_is_reported(strategy):
    endless = table_of({(A,) * n: {A: 0.9, B: 0.1} for n in range(L)}, V, L)
    assert search_all(strategy, endless, L, USUAL).bad_step == L
    step = step_on(endless)

    def broken(tokens, index, cache):
        logits, cache = step(tokens, index, cache)
        return logits + (np.nan if int(index) in (2, 3) else 0.0), cache

    assert search_all(strategy, endless, L, USUAL, step=broken).bad_step == 2
    # What an empty sentence says does not count.
    assert search_all(strategy, endless, L, USUAL, step=broken, is_empty=[True]).bad_step == L
