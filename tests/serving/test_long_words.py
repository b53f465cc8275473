"""Words that are longer than any vocabulary needs cost no more than their length."""

import re

import numpy as np
import pretrained_vocabularies as families
import pytest
import tensorflow as tf
from long_texts import long_texts

from keras_addnorm.data import Tokenizer
from keras_addnorm.data.long_words import LONGEST_WORD, has_long_word, parts_of_text, parts_of_word
from keras_addnorm.data.normalization import RULES, Normalizer
from keras_addnorm.serving import graph_tokenizer
from keras_addnorm.serving.graph_normalizer import GraphNormalizer
from keras_addnorm.serving.graph_tokenizers import graph_tokenizer_of
from keras_addnorm.serving.ragged_characters import to_characters
from keras_addnorm.serving.string_numbers import StringNumbers

TEXTS = long_texts()


def assert_same_in_a_graph(tokenizer):
    rows = tokenizer.encode_batch(TEXTS)
    graph = graph_tokenizer_of(tokenizer)
    assert graph.tokenize(tf.constant(TEXTS)).to_list() == rows
    assert [tokenizer.encode(text) for text in TEXTS] == rows
    return rows


@pytest.mark.parametrize("bytes_too", [False, True])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_python_and_the_graph_cut_at_the_same_characters(texts, kind, bytes_too):
    tokenizer = Tokenizer.train(
        texts, vocabulary_size=450 if bytes_too else 180, kind=kind, byte_fallback=bytes_too
    )
    rows = assert_same_in_a_graph(tokenizer)
    # Nothing is lost at a cut, and unknown characters on both of its sides are one.
    said = [re.sub("\u2047+", "\u2047", text) for text in tokenizer.decode_batch(rows)]
    known = TEXTS if bytes_too else [re.sub("[日語本é]+", "\u2047", text) for text in TEXTS]
    assert said == [text.strip() for text in known]
    if not bytes_too:
        assert rows[TEXTS.index("日" * 2300)].count(tokenizer.unknown_id) == 1


@pytest.mark.parametrize(
    "name", [*("bart", "byt5"), *(pytest.param(n, marks=pytest.mark.slow) for n in ("nllb", "t5"))]
)
def test_tokenizers_of_others_do_the_same(name):
    tokenizer = families.FAMILIES[name]()
    rows = assert_same_in_a_graph(tokenizer)
    if name in ("bart", "byt5"):
        assert tokenizer.decode_batch(rows) == [*TEXTS[:-1], TEXTS[-1].strip()]


def test_no_piece_goes_on_over_a_cut(tokenizer):
    """The parts of a word are those of the parts of its text; the first has the mark of a space."""
    word = "bakuler" * 400
    ids = tokenizer.encode(word)
    parts = parts_of_word(word)
    first = tokenizer.encode(parts[0])
    assert ids[: len(first)] == first and len(parts) == 3
    ends = np.cumsum([len(tokenizer.pieces[token].text) for token in ids]) - 1  # Without the mark.
    assert {LONGEST_WORD, 2 * LONGEST_WORD} <= set(ends.tolist())
    assert tokenizer.decode(ids) == word


def test_long_words_are_not_remembered():
    tokenizer = families.FAMILIES["bart"]()
    tokenizer.encode("a" * (LONGEST_WORD + 1))
    assert tokenizer._tokens_of_word.cache_info().currsize == 0
    tokenizer.encode("a" * LONGEST_WORD)
    assert tokenizer._tokens_of_word.cache_info().currsize == 1


def test_a_search_has_no_more_steps_than_a_part_has_characters():
    """However long the word is: a segment is what a loop goes through."""
    characters, ends = to_characters(tf.constant(["▁" + "bakuler" * 1000, "▁ba"]))
    matches = tf.ones([7004, 2], tf.int32)  # A piece of two characters ends everywhere.
    spans = tf.concat([[1], tf.fill([7003], 2)], 0)[:, None]
    assert np.bincount(graph_tokenizer._segments(spans)).tolist() == [7004]
    matches, cuts = graph_tokenizer._cut_long_words(matches, characters, ends)
    found = graph_tokenizer._segments(tf.where(matches > 0, [[2, 1]], 1))
    assert np.bincount(found).tolist() == [1001, *[LONGEST_WORD] * 5, 1003]
    assert int(cuts[-1]) == 6


def test_a_graph_refuses_pieces_and_symbols_that_it_would_look_for_at_any_cost():
    with pytest.raises(ValueError, match=r"at most 1,000 characters\. Received: one of 1,001"):
        StringNumbers().add("a" * (LONGEST_WORD + 1))
    symbols = [f"<{number:05}>" for number in range(10_001)]
    normalizer = Normalizer(RULES["none"], "".__contains__, symbols)
    with pytest.raises(ValueError, match=r"at most 10,000 symbols\. Received: 10,001"):
        GraphNormalizer(normalizer)


def test_parts():
    word = "x" * (2 * LONGEST_WORD + 5)
    assert list(map(len, parts_of_word(word))) == [LONGEST_WORD, LONGEST_WORD, 5]
    assert parts_of_word("x" * LONGEST_WORD) == ["x" * LONGEST_WORD]
    text = f"a {word} b {word[:LONGEST_WORD]} c"
    assert list(map(len, parts_of_text(text))) == [
        2 + LONGEST_WORD,
        LONGEST_WORD,
        5 + 3 + LONGEST_WORD + 2,
    ]
    assert "".join(parts_of_text(text)) == text and parts_of_text("a b") == ["a b"]
    assert has_long_word(text) and not has_long_word("x" * LONGEST_WORD)
    assert not has_long_word("x y " * LONGEST_WORD)
