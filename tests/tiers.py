"""`@pytest.mark.fast_cases(count)`: so many cases of a test are in the default tier."""

import itertools

import pytest

_GOLDEN = (5**0.5 - 1) / 2


def spread(num_cases, count):
    """Returns `count` of the indices, without a period that axes of a product could share."""
    return sorted(sorted(range(num_cases), key=lambda index: index * _GOLDEN % 1)[:count])


def mark_slow_cases(items):
    """Marks the other cases of tests with `fast_cases` as slow."""
    marked = [item for item in items if item.get_closest_marker("fast_cases")]
    for _, group in itertools.groupby(marked, key=lambda item: item.nodeid.partition("[")[0]):
        cases = list(group)
        (count,) = cases[0].get_closest_marker("fast_cases").args
        fast = {cases[index] for index in spread(len(cases), count)}
        for case in cases:
            if case not in fast:
                case.add_marker(pytest.mark.slow)
