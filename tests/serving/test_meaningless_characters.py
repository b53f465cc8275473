"""NULs and halves of surrogate pairs mean nothing, in Python and in a graph alike."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from pretrained_vocabularies import FAMILIES

from keras_addnorm.data import Tokenizer
from keras_addnorm.decoding import translate
from keras_addnorm.serving.client import _array
from keras_addnorm.serving.graph_tokenizers import graph_tokenizer_of

NOTHING = ("\0", "\ud800", "\udfff", "\0\udc00\0")
TEXTS = ("Dr. Ba di. Ku\nler!", " mon  tö", "", "ba", "é日 ½ 🙂.")


def spoiled(text, places, what):
    """The text with something that means nothing at some places."""
    for place in sorted((place % (len(text) + 1) for place in places), reverse=True):
        text = text[:place] + what + text[place:]
    return text


def raw(text):
    """Bytes as a careless client sends them."""
    return text.encode("utf-8", "surrogatepass")


CASES = st.tuples(
    st.sampled_from(TEXTS), st.lists(st.integers(0, 20), max_size=4), st.sampled_from(NOTHING)
)


@pytest.fixture(scope="module", params=["trained", "byt5", "bart"])
def both(request, tokenizer):
    own = tokenizer if request.param == "trained" else FAMILIES[request.param]()
    return own, graph_tokenizer_of(own)


@settings(max_examples=20, deadline=None)
@given(case=CASES)
def test_ids_do_not_change(both, case):
    tokenizer, graph = both
    expected = tokenizer.encode(case[0])
    assert tokenizer.encode(spoiled(*case)) == expected
    texts = tf.constant([raw(spoiled(*case))])
    assert graph.tokenize(texts).to_list() == [expected]
    assert graph.normalize(texts).numpy() == graph.normalize(tf.constant([case[0]])).numpy()


def test_a_vocabulary_does_not_learn_them():
    texts = ["ba di ku", "di ba"] * 3
    plain = Tokenizer.train(texts, vocabulary_size=12)
    spoiled_texts = [spoiled(text, (0, 4, 9), "\0\ud800") for text in texts]
    assert Tokenizer.train(spoiled_texts, vocabulary_size=12) == plain


@pytest.fixture(scope="module")
def expected(toy):
    texts = [text for text in TEXTS if text]
    return translate(toy.model, toy.tokenizers, texts, jit_compile=False, **toy.options)


@pytest.mark.parametrize("what", NOTHING)
def test_translations_do_not_change(toy, translator, module, expected, what):
    texts = [text for text in TEXTS if text]
    bad = [spoiled(text, (0, 2, 5, 10, len(text)), what) for text in texts]
    found = translate(toy.model, toy.tokenizers, bad, jit_compile=False, **toy.options)
    assert found.texts == expected.texts
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert translator(bad) == translator(texts)
    served = module.signatures["serving_default"]
    answers = [
        served(texts=tf.constant(list(map(raw, each))))["translations"].numpy().tolist()
        for each in (texts, bad)
    ]
    assert answers[0] == answers[1] == [text.encode() for text in expected.texts]


def test_a_client_can_send_them():
    array = _array("texts", [["a\ud800", "b\0"], [b"\x00\xff", "\ud83d\ude00"]])
    assert array.tolist() == [["a", "b\0"], [b"\x00\xff", "\U0001f600"]]
    with pytest.raises(ValueError, match="Expected input 'texts' as an array"):
        _array("texts", [["a"], []])
