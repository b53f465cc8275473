"""Words that are longer than any vocabulary needs cost no more than their length."""

import numpy as np
import pretrained_vocabularies as families
import pytest
import tensorflow as tf
from long_texts import long_texts

from keras_addnorm.data import Tokenizer
from keras_addnorm.data.long_words import LONGEST_WORD, has_long_word, parts_of_text, parts_of_word
from keras_addnorm.serving import GraphTokenizer, graph_tokenizer
from keras_addnorm.serving.graph_tokenizers import graph_tokenizer_of

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
    run = TEXTS.index("日" * 2300)
    assert len(rows[run]) == (6900 if bytes_too else 1) + (len(tokenizer.encode("日a")) > 2)
    every = tokenizer.decode_batch(rows)
    assert all(
        text == (said if bytes_too else text.replace("日", "⁇"))
        for text, said in zip(every, TEXTS, strict=True)
        if bytes_too or not set("日語本é") & set(said)
    )


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


def test_a_search_has_no_more_steps_than_a_part_has_characters(texts, monkeypatch):
    """However long the word is: segments are what the loops go through."""
    seen = []
    segments = graph_tokenizer._segments

    def remembered(spans):
        found = segments(spans)
        seen.append(tf.reduce_max(tf.math.bincount(found)))
        return found

    monkeypatch.setattr(graph_tokenizer, "_segments", remembered)
    module = GraphTokenizer(Tokenizer.train(texts, vocabulary_size=180))
    words = tf.constant(["▁" + "bakuler" * 1000, "▁ba"])
    with_loops = tf.function(module._tokenize_words, autograph=False)
    tf.config.run_functions_eagerly(True)
    try:
        with_loops(words)
    finally:
        tf.config.run_functions_eagerly(False)
    assert 100 < int(seen[0]) <= LONGEST_WORD + 1


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
