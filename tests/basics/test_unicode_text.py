"""What no text means."""

import itertools
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_addnorm.basics import text as basic_text
from keras_addnorm.basics.text import encodable_text, meaningful_text, normalized

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


MARKS = st.sampled_from("ae\u0301\u0323\u0344\u0f73\u1e0b\u0307\uac00\u11a8\ufdfa\u3099か \u034f")


@settings(deadline=None, max_examples=100)
@given(st.text(CHARACTERS | MARKS, max_size=40) | st.text(MARKS, max_size=40))
def test_long_texts_have_the_form_that_short_ones_have(text):
    long = text + "a" * basic_text._SHORT
    for form in ("NFC", "NFKC"):
        assert normalized(form, text) == unicodedata.normalize(form, text)
        assert normalized(form, long) == unicodedata.normalize(form, long)


def test_python_has_no_marks_to_put_in_order(monkeypatch):
    """It would take the square of their number."""
    seen = []

    def normalize(form, text):
        seen.append(text)
        return original(form, text)

    original = unicodedata.normalize
    monkeypatch.setattr(basic_text.unicodedata, "normalize", normalize)
    text = "e" + "\u0301\u0323" * 2000 + "a" + "\u0344" * 7
    found = normalized("NFC", text)
    assert found == original("NFC", text)
    assert seen[-1][:2001] == "e" + "\u0323" * 2000
    for long in (each for each in seen if len(each) > basic_text._SHORT):
        classes = map(unicodedata.combining, long)
        assert all(not now or before <= now for before, now in itertools.pairwise(classes))
