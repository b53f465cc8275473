"""User-defined symbols are found as a pattern of all of them finds them, but not one by one."""

import itertools
import re
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from keras_addnorm.data.symbol_tree import SymbolTree

LETTERS = st.text("ab]^-\n", max_size=30)


@settings(deadline=None)
@given(st.sets(st.text("ab]^-\n", min_size=1, max_size=5), max_size=12), LETTERS)
def test_a_text_is_divided_as_by_a_pattern_with_the_longest_symbols_first(symbols, text):
    pattern = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True))) or "(?!)"
    assert SymbolTree(symbols).split(text) == re.split(f"({pattern})", text)


def test_a_text_is_not_compared_with_each_symbol():
    def comparisons(symbols):
        tree, calls = SymbolTree(symbols), []
        sys.setprofile(lambda frame, event, argument: calls.append(event))
        try:
            tree.split("abcd" * 50)
        finally:
            sys.setprofile(None)
        return len(calls)

    few, many = (
        ["".join(letters) + "e" for letters in itertools.product("abcd", repeat=size)]
        for size in (4, 6)
    )
    assert comparisons(many) < 2 * comparisons(few)  # Of 4,096 symbols, and of 256.
