"""User-defined symbols are found as a pattern of all of them finds them, but not one by one."""

import itertools
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_addnorm.data.symbol_tree import SymbolTree

LETTERS = st.text("ab]^-\n", max_size=30)


@settings(deadline=None)
@given(st.sets(st.text("ab]^-\n", min_size=1, max_size=5), max_size=12), LETTERS)
def test_a_text_is_divided_as_by_a_pattern_with_the_longest_symbols_first(symbols, text):
    pattern = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True))) or "(?!)"
    assert SymbolTree(symbols).split(text) == re.split(f"({pattern})", text)


def comparisons(symbols, text="abcd" * 50):
    tree, calls = SymbolTree(symbols), []
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        tree.split(text)
    finally:
        sys.setprofile(None)
    return len(calls)


def test_a_text_is_not_compared_with_each_symbol():
    few, many = (
        ["".join(letters) + "e" for letters in itertools.product("abcd", repeat=size)]
        for size in (4, 6)
    )
    assert comparisons(many) < 2 * comparisons(few)  # Of 4,096 symbols, and of 256.


@pytest.mark.parametrize("form", ["{}c", "c{}", "b{}c", "{}"])
def test_a_character_is_looked_at_a_few_times_whatever_the_symbols_are(form):
    """All of them can begin at each place; at each, the text was followed as far as one goes."""
    symbols = [form.format("a" * size) for size in range(1, 200)]
    text = "a" * 300 + "b" + "a" * 300 + "c" + "a" * 300
    assert comparisons(symbols, text) < 6 * len(text)


def test_symbols_that_would_take_the_memory_are_refused():
    with pytest.raises(ValueError, match=r"at most 524,288 characters together.*600,000 of 600"):
        SymbolTree(f"{number:05}" + "a" * 995 for number in range(600))
