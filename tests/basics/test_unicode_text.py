"""What no text means."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_addnorm.basics.text import encodable_text, meaningful_text

CHARACTERS = st.characters(codec="utf-8")
HALVES = st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a house", "a house"),
        ("a\0 house\0", "a house"),
        ("\ud800a\udc00", "a"),
        ("\ud83d\ude00!", "\U0001f600!"),
        ("\ud83d\ud83d\ude00", "\U0001f600"),
        ("\U0001f600\ud83d", "\U0001f600"),
        ("\0\ud83d", ""),
    ],
)
def test_examples(text, expected):
    assert meaningful_text(text) == expected


@settings(deadline=None, max_examples=40)
@given(st.text(CHARACTERS | st.just("\0") | HALVES))
def test_what_is_left_can_be_encoded(text):
    assert encodable_text(text).encode().decode() == encodable_text(text)
    assert meaningful_text(text) == encodable_text(text).replace("\0", "")
    assert meaningful_text(meaningful_text(text)) == meaningful_text(text)


@settings(deadline=None, max_examples=40)
@given(st.text(CHARACTERS))
def test_a_text_that_can_be_encoded_stays(text):
    assert encodable_text(text) == text
