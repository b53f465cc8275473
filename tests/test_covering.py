"""`covering` leaves out no pair, and has few rows."""

import itertools

import pytest
from covering import covering

AXES = [
    ("abcdef", (True, False), (0, 1)),
    ("abc", "xy"),
    ("abcdefghijklmn", range(8), range(8)),
    ("ab", "cd", "ef", "gh", "ij", "kl", "mn"),
    (range(3), "a", range(4), (None, False)),
]


def combinations(rows, places):
    return {tuple(row[place] for place in places) for row in rows}


@pytest.mark.parametrize("strength", [1, 2])
@pytest.mark.parametrize("axes", AXES, ids=str)
def test_every_combination_occurs(axes, strength):
    rows = covering(*axes, strength=strength)
    for places in itertools.combinations(range(len(axes)), strength):
        wanted = set(itertools.product(*(axes[place] for place in places)))
        assert combinations(rows, places) == wanted


@pytest.mark.parametrize(
    ("axes", "strength", "at_most"),
    [
        (AXES[0], 2, 12),
        (AXES[1], 2, 6),
        (AXES[1], 1, 3),
        (AXES[2], 2, 130),  # 112 at least
        (AXES[2], 1, 14),
        (AXES[3], 2, 10),  # of 128
        (AXES[4], 3, 24),
        ((range(5),), 1, 5),
    ],
    ids=str,
)
def test_the_rows_are_few_and_the_same_each_time(axes, strength, at_most):
    rows = covering(*axes, strength=strength)
    assert len(set(rows)) == len(rows) <= at_most
    assert rows == covering(*axes, strength=strength)


def test_values_are_used_alike():
    """Each scheme with one norm: half of them with each."""
    rows = covering(range(14), ("layer", "rms"), strength=1)
    assert [row[0] for row in rows] == [*range(14)]
    assert sorted(row[1] for row in rows) == 7 * ["layer"] + 7 * ["rms"]


def test_values_may_be_of_any_kind():
    assert covering([{}, {"window": 2}], [[1], [2]], strength=1) == [
        ({}, [1]),
        ({"window": 2}, [2]),
    ]


@pytest.mark.parametrize(
    ("axes", "strength"), [((), 1), (("ab", ""), 1), (("ab",), 2), (("ab",), 0)]
)
def test_what_cannot_be_covered_is_refused(axes, strength):
    with pytest.raises(ValueError, match=r"Expected axes that are not empty.*strength="):
        covering(*axes, strength=strength)
