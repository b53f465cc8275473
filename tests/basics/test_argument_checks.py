"""Checks of numbers and names."""

import math

import numpy as np
import pytest

from keras_addnorm.basics.argument_checks import (
    in_float32,
    is_number,
    is_whole,
    require_bool,
    require_epsilon,
    require_gain,
    require_int,
    require_share,
    require_size,
)


@pytest.mark.parametrize("value", [0, 3, -3, 2**70, np.int8(3), np.uint64(3)])
def test_whole_numbers(value):
    assert is_whole(value) and is_number(value)


@pytest.mark.parametrize("value", [True, np.True_, 2.0, "3", None, np.nan, [3], np.array([3])])
def test_what_is_no_whole_number(value):
    assert not is_whole(value)


@pytest.mark.parametrize("value", [0.5, -0.5, np.float32(0.5), 3e38, -3e38, 1e-300])
def test_numbers(value):
    assert is_number(value) and not is_whole(value)


@pytest.mark.parametrize(
    "value",
    [True, math.nan, math.inf, -math.inf, 1e39, -1e39, 10**400, "0.5", None, 1j, [0.5]],
)
def test_what_is_no_number(value):
    assert not is_number(value)


def test_limits():
    assert is_whole(2, 2, 2) and not is_whole(1, 2) and not is_whole(3, 2, 2)
    assert is_number(2, least=2, most=2)
    assert not is_number(2, above=2) and not is_number(2, below=2)
    assert not is_number(2, least=3) and not is_number(2, most=1)


def test_limits_hold_for_what_float32_makes_of_a_number():
    """Dropout of 0.99999999 once divided by 0, and a temperature of 1e-46 was one of 0."""
    assert is_number(1 - 2e-7, below=1) and not is_number(1 - 1e-9, below=1)
    assert is_number(1e-37, above=0) and not is_number(1e-39, above=0)
    assert is_number(np.float64(0.1), least=0.1, most=0.1)
    assert not is_number(-1e-50, least=0) and not is_number(1 + 1e-12, most=1)
    for value, held in ((0.1, np.float32(0.1)), (-2.5, -2.5), (1e39, np.inf), (-(10**50), -np.inf)):
        assert in_float32(value) == held


@pytest.mark.parametrize(
    ("require", "right", "wrong", "words"),
    [
        (lambda x: require_int("They count.", least=0, x=x), 0, -1, "They count. .*int x >= 0"),
        (lambda x: require_share(x=x), 0.0, 1.0, "x is a share"),
        (lambda x: require_gain(x=x), 0.0, -1.0, "x is a factor"),
        (lambda x: require_size(x=x), 1, 0, "x has to be a positive integer"),
        (require_epsilon, 0.0, -1.0, "epsilon.*>= 0"),
        (require_epsilon, 1e-37, 1e-60, "epsilon.*>= 0"),
        (lambda x: require_bool(x=x), np.True_, 1, "x is a switch. Expected True or False"),
    ],
    ids=["whole", "share", "gain", "size", "epsilon", "tiny", "switch"],
)
def test_what_is_refused_is_said(require, right, wrong, words):
    require(right)
    with pytest.raises(ValueError, match=f"{words}.*Received: {wrong!r}"):
        require(wrong)
    with pytest.raises(ValueError, match="Received: nan"):
        require(math.nan)
