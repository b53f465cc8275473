"""Texts are split, and their translations joined, in a graph as in Python."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.data import Tokenizer
from keras_addnorm.decoding import LongTexts, NoSplitting, Sentences
from keras_addnorm.decoding.length_penalties import GNMTPenalty
from keras_addnorm.decoding.sentence_rules import (
    JOIN_RULES,
    MARK,
    is_one_sentence,
    sentence_rules,
    substitute,
)
from keras_addnorm.decoding.splitting import join as python_join
from keras_addnorm.decoding.splitting import make_segments, split
from keras_addnorm.serving.graph_segments import (
    GraphSegments,
    GraphSplitter,
    concat_rows,
    join,
    mean_of_rows,
)
from keras_addnorm.serving.graph_tokenizer import GraphTokenizer

SCRIPTS = {
    "latin": "Dr. Cox paid $3.50 on 12. May, e.g. for “Fig. 2”… Why? “Oh!” he said. U.S.; 1. No",
    "german": "Am 3. Mai z. B. kam Prof. Weiß (d. h. Karl IV. Müller). »Ja!« sagte er, Nr. 7. Er",
    "greek": "Τι κάνεις; Καλά. Α. Σ. Νίκος, π.χ. εδώ… «Ναι!» είπε. 3.5%",
    "russian": "А. С. Пушкин жил на ул. Мойка, д. 12. Да! «Нет?» — сказал он. И т. д. Конец",
    "chinese": "你好，世界！你去哪儿？？他说：“走吧。”价格是3.5元,真的吗?是的!(好)……再见。Ok. 好",
    "japanese": "「行こう。」彼は3.5キロ、走った！はい？ｱｲｳ｡終わり（笑）。々〇ー",
    "arabic": "ذهب الولد إلى المدرسة. هل رجع؟ نعم، رجع؛ د. أحمد قال: «لا!» ١٢٫٥",
    "urdu": "وہ گھر گیا۔ کیا وہ آیا؟ ہاں، آیا۔",
    "hindi": "वह घर गया। क्या वह आया? हाँ, डॉ. राम ३.५ बजे आए।बस॥ ठीक",
    "thai": "เขาไปโรงเรียน แล้วกลับบ้าน 3.5 กม. จริงหรือ? ใช่! ดีมาก",
    "spaces": " \t\n\r\n\x0b\x85\xa0\u2003\u2028\u3000 \n\n  ",
    "marks": "....!?!…?\"'”’)]}»」』）】([{«“„‘「*_-–—•|1.2.A.b.",
}


def mixtures(count, seed):
    """Parts of texts of all scripts, in any order, and single characters of them."""
    generator = np.random.default_rng(seed)
    texts = [*SCRIPTS.values()]
    for _ in range(count):
        parts = []
        for _ in range(generator.integers(1, 24)):
            text = texts[generator.integers(len(texts))]
            start, size = generator.integers(len(text)), generator.integers(1, 12)
            parts.append(text[start : start + size])
        yield "".join(parts) + str(generator.choice(["", " ", "\n", ". ", "。"]))


MIXTURES = [*SCRIPTS.values(), *mixtures(600, seed=4)]


def in_graph(texts, rules):
    texts = tf.constant(texts)
    for pattern, rewrite in rules:
        texts = tf.strings.regex_replace(texts, pattern, rewrite)
    return [text.decode() for text in texts.numpy()]


@pytest.mark.parametrize("language", [None, "de", "el", "ru"])
def test_both_engines_read_the_rules_alike(language):
    rules = sentence_rules(language).substitutions
    expected = [substitute(text, rules) for text in MIXTURES]
    assert in_graph(MIXTURES, rules) == expected
    assert sum(text.count(MARK) for text in expected) > 1000


@pytest.mark.parametrize("language", [None, "el"])
def test_what_is_quickly_seen_to_be_one_sentence_is_one(language):
    rules = sentence_rules(language)
    for text in MIXTURES:
        first, *others = substitute(text, rules.substitutions).split(MARK)
        assert split(text, Sentences(language)) == [first, *filter(None, others)]
    expected = [is_one_sentence(text, rules) for text in MIXTURES]
    found = tf.strings.regex_full_match(MIXTURES, rules.one_sentence).numpy().tolist()
    assert found == expected and sum(expected) > 20


def test_both_engines_join_alike():
    generator = np.random.default_rng(6)
    marked = [
        "".join(MARK + c if generator.random() < 0.3 else c for c in text) for text in MIXTURES
    ]
    expected = [substitute(text, JOIN_RULES) for text in marked]
    assert in_graph(marked, JOIN_RULES) == expected
    assert not any(MARK in text for text in expected)


@pytest.fixture(scope="module")
def all_scripts():
    texts = [text for text in SCRIPTS.values() if not text.isspace()]
    tokenizer = Tokenizer.train([*texts, *MIXTURES[:100]], vocabulary_size=420)
    return tokenizer, GraphTokenizer(tokenizer)


@dataclasses.dataclass
class Config:
    max_length: int
    end_id: int = 2


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize(
    ("way", "longest"),
    [
        (Sentences(), 3),
        (Sentences("el"), 7),
        (Sentences("de"), 30),
        (LongTexts("de"), 7),
        (LongTexts(), 30),
        (NoSplitting(), 7),
    ],
    ids=repr,
)
def test_the_same_segments(all_scripts, way, longest):
    tokenizer, graph_tokenizer = all_scripts
    texts = ["", " ", f"A.{MARK} b", *MIXTURES[:60], "\n"]
    expected = make_segments(texts, tokenizer, way, Config(longest + 1))
    splitter = GraphSplitter(tokenizer, graph_tokenizer, way, longest)
    found = tf.function(splitter, [tf.TensorSpec([None], tf.string)])(tf.constant(texts))
    tokens = [row[:longest] for row in found.tokens.to_list()]
    assert [[*row, 2] if row else [] for row in tokens] == expected.rows
    assert found.first_rows.numpy().tolist() == expected.first_rows
    inner = set(range(len(expected.rows))) - {row - 1 for row in expected.first_rows}
    joints = [joint.decode() for joint in found.joints.numpy()]
    assert all(joints[row] == expected.joints[row] for row in inner)
    if way != NoSplitting():
        assert len(inner) > 80
        assert max(map(len, tokens)) <= longest < 2 * max(map(len, tokens))


def test_a_model_that_reads_nothing_is_refused(all_scripts):
    with pytest.raises(ValueError, match=r"Expected a config with max_length >= 2.*: 1\."):
        GraphSplitter(*all_scripts, Sentences(), 0)


def test_no_texts(all_scripts):
    for way in (Sentences(), LongTexts(), NoSplitting()):
        found = GraphSplitter(*all_scripts, way, 7)(tf.constant([], tf.string))
        assert found.first_rows.numpy().tolist() == [0]
        assert found.tokens.to_list() == []


def test_invalid_text_is_split_as_well(all_scripts):
    splitter = GraphSplitter(*all_scripts, Sentences(), 30)
    found = splitter(tf.constant([b"a\xff b.\xfe \xff\n\xff c. D \xff."]))
    assert found.first_rows.numpy().tolist() == [0, 3]
    assert [joint.decode() for joint in found.joints.numpy()[:2]] == [f"{MARK}\n", f"{MARK} "]


def test_translations_and_scores_are_joined(all_scripts):
    texts = ["Ja. Nein.\nOh. ", "Ja.", "\n", "Ja. Ja."]
    segments = GraphSplitter(*all_scripts, Sentences(), 30)(tf.constant(texts))
    assert segments.first_rows.numpy().tolist() == [0, 3, 4, 5, 7]
    translations = [
        ["a", "b"],
        ["", "d"],
        ["e", "f"],
        [" g", "h"],
        ["", ""],
        ["好。", "k"],
        ["l", "m"],
    ]
    scores = -np.arange(1.0, 15.0, dtype="float32").reshape(7, 2)
    scores[6, 1] = -np.inf
    lengths = np.arange(2, 16, dtype="int32").reshape(7, 2)
    penalty = GNMTPenalty(0.6)
    found, found_scores = join(
        tf.constant(translations), tf.constant(scores), tf.constant(lengths), segments, penalty
    )
    found = np.vectorize(lambda text: text.decode())(found.numpy())
    assert found.tolist() == [["a \ne", "b d\nf"], [" g", "h"], ["", ""], ["好。l", "k m"]]
    joints = [joint.decode() for joint in segments.joints.numpy()]
    assert python_join(["b", "d", "f"], joints[:3]) == found[0, 1]
    sums = scores * ((5 + lengths) / 6) ** 0.6
    whole = sums[:3].sum(0) / ((5 + lengths[:3].sum(0)) / 6) ** 0.6
    np.testing.assert_allclose(found_scores[0], whole, rtol=1e-5)
    np.testing.assert_array_equal(found_scores[1:3], scores[3:5])
    assert found_scores[3, 1] == -np.inf and np.isfinite(found_scores[3, 0])


def test_scores_of_thousands_of_segments_add_up_exactly():
    count = 5000
    tokens = tf.RaggedTensor.from_uniform_row_length(tf.ones([count], tf.int32), 1)
    segments = GraphSegments(tokens, tf.fill([count], MARK), tf.constant([0, count], tf.int64))
    scores = np.full((count, 1), -3.1456745, "float32")
    lengths = tf.fill([count, 1], 7)
    _, found = join(tf.fill([count, 1], "ba"), scores, lengths, segments, GNMTPenalty(0.6))
    expected = count * scores[0].astype("float64") * 2**0.6 / ((5 + 7 * count) / 6) ** 0.6
    np.testing.assert_allclose(found[0], expected, rtol=3e-7)


def test_the_mean_of_a_long_text_is_exact():
    values = tf.concat([tf.fill([50_000, 3], 0.31456745), [[1.0, 2.0, 4.0]]], 0)
    rows = tf.RaggedTensor.from_row_lengths(values, [50_000, 0, 1])
    expected = [3 * [0.31456745], [0, 0, 0], [1, 2, 4]]
    np.testing.assert_allclose(mean_of_rows(rows), expected, rtol=1e-7)


def test_rows_are_put_one_behind_the_other():
    values = tf.constant([[1, 2, 0], [3, 0, 0], [0, 0, 0], [4, 5, 6]])
    whole = concat_rows(values, tf.constant([2, 1, 0, 3]), tf.constant([0, 2, 3, 4], tf.int64))
    assert whole.to_list() == [[1, 2, 3], [], [4, 5, 6]]
