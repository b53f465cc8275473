"""Which tier each case of a test is in.

`@pytest.mark.fast_cases(count)` leaves so many cases in the default tier. Twice as many are slow,
and the rest of a long table is for releases. `for_releases` says which by name.
"""

import itertools

import pytest

SLOW_FOR_EACH_FAST = 2
_GOLDEN = (5**0.5 - 1) / 2


def spread(num_cases, count):
    """Returns `count` of the indices, without a period that axes of a product could share."""
    return sorted(sorted(range(num_cases), key=lambda index: index * _GOLDEN % 1)[:count])


def for_releases(cases, but):
    """Returns the cases for `parametrize`; those that are not among `but` are for releases."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if case in but else pytest.mark.release,
        )
        for case in cases
    ]


def mark_slow_cases(items):
    """Marks the other cases of tests with `fast_cases` as slow, or for releases."""
    marked = [item for item in items if item.get_closest_marker("fast_cases")]
    for _, group in itertools.groupby(marked, key=lambda item: item.nodeid.partition("[")[0]):
        cases = list(group)
        (count,) = cases[0].get_closest_marker("fast_cases").args
        numbers = (count, count * (1 + SLOW_FOR_EACH_FAST))
        fast, fast_or_slow = (set(spread(len(cases), number)) for number in numbers)
        for index, case in enumerate(cases):
            if index not in fast_or_slow:
                case.add_marker(pytest.mark.release)
            elif index not in fast:
                case.add_marker(pytest.mark.slow)
