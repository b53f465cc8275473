import dataclasses

import numpy as np
import pytest
from models_reference import V_SOURCE, V_TARGET, tiny_model

from keras_addnorm.decoding import (
    Beam,
    ForbiddenTokens,
    Greedy,
    MinLength,
    Prefix,
    Sample,
    Search,
    Translation,
    Translations,
    translate,
)

END = 2


class LetterTokenizer:
    """One token a letter, "a" is 3: a tokenizer with the methods that translation uses."""

    def __init__(self, vocabulary_size):
        self.vocabulary_size = vocabulary_size

    def encode_batch(self, texts):
        assert isinstance(texts, list)
        return [[3 + ord(letter) - ord("a") for letter in text if letter != " "] for text in texts]

    def decode_batch(self, rows):
        texts = []
        for row in rows:
            row = row[: row.index(END)] if END in row else row
            texts.append("".join(chr(ord("a") + token - 3) for token in row if token > 2))
        return texts


@dataclasses.dataclass
class Pair:
    source: LetterTokenizer
    target: LetterTokenizer


PAIR = Pair(LetterTokenizer(V_SOURCE), LetterTokenizer(V_TARGET))


class Copying:
    """Stands in for a model: "translates" by copying, and writes down what it was asked."""

    def __init__(self, config):
        self.config = config
        self.requests = []

    def generate(self, ids, *, search, **options):
        self.requests.append((ids.copy(), {**vars(search), **options}))
        is_real = ids != 0
        return ids, np.where(is_real.any(-1), -is_real.sum(-1), 0).astype("float32")


@pytest.fixture(scope="module")
def model():
    return tiny_model(num_encoder_layers=1, num_decoder_layers=1, max_length=6)


@pytest.fixture
def copying(model):
    return Copying(model.config)


TEXTS = ["abc", "", "h", "dd", "   ", "gfeab", "a"]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 64])
def test_texts_keep_their_order_and_their_scores(batch_size, copying):
    result = translate(copying, PAIR, TEXTS, batch_size=batch_size)
    assert isinstance(result, Translations)
    assert result.texts == ["abc", "", "h", "dd", "", "gfeab", "a"]
    np.testing.assert_array_equal(result.scores, [-4, 0, -2, -3, 0, -6, -2])
    assert result.scores.dtype == "float32"


def test_sources_are_tokens_and_an_end_and_empty_ones_are_padding(copying):
    translate(copying, PAIR, ["ab", " "], batch_size=2)
    ((ids, _),) = copying.requests
    np.testing.assert_array_equal(ids, [[0, 0, 0], [3, 4, END]])


def test_without_splitting_a_long_source_is_cut_before_its_end(copying):
    result = translate(copying, PAIR, ["abcdefgh", "abcde"], splitting="none")
    assert result.texts == ["abcde", "abcde"]
    np.testing.assert_array_equal(copying.requests[0][0][:2], 2 * [[3, 4, 5, 6, 7, END]])


class Sentences(LetterTokenizer):
    """Letters with capitals and full stops, which are no tokens of the source."""

    def encode_batch(self, texts):
        kept = ["".join(filter(str.isalpha, text)).lower() for text in texts]
        return super().encode_batch(kept)


SENTENCES = Pair(Sentences(V_SOURCE), LetterTokenizer(V_TARGET))


def test_u1_every_sentence_of_a_paragraph_is_translated(copying):
    text = "".join(f"Ab{'cdefg'[i % 5] * (i % 4)}. " for i in range(60))
    result = translate(copying, SENTENCES, [text, "H", ""], batch_size=7)
    expected = " ".join(f"ab{'cdefg'[i % 5] * (i % 4)}" for i in range(60))
    assert result.texts == [expected, "h", ""]
    lengths = [len(word) + 1 for word in expected.split()]
    np.testing.assert_array_equal(result.scores, [-sum(lengths), -2, 0])
    shapes = [ids.shape for ids, _ in copying.requests]
    assert {rows for rows, _ in shapes} == {7} and sum(rows for rows, _ in shapes) >= 62


def test_u1_line_breaks_and_long_words_stay(copying):
    texts = ["Ab.\n\nCd!\n Abcdefgh", "abcdefgh"]
    assert translate(copying, SENTENCES, texts).texts == ["ab\n\ncd\n abcdefgh", "abcdefgh"]


def test_the_score_of_a_text_is_that_of_all_its_tokens(model):
    """Also for the k-th translation, which joins the k-th of each sentence."""
    strategy, sentences = Beam(3, 0.6, num_return=2), ["Abc. ", "Hi!\n", "Gfe"]
    options = {"jit_compile": False, "batch_size": 4}
    whole = translate(model, SENTENCES, ["".join(sentences), "..."], strategy, **options)
    source = np.array([[3, 4, 5, END], [10, 11, END, 0], [9, 8, 7, END]])
    ids, scores = model.generate(source, strategy, jit_compile=False)
    lengths = (ids != 0).sum(-1)
    for k, (text, score) in enumerate(whole.n_best[0]):
        found = PAIR.target.decode_batch(ids[:, k].tolist())
        assert text.split() == " ".join(found).split()
        sums = scores[:, k] * ((5 + lengths[:, k]) / 6) ** 0.6
        np.testing.assert_allclose(
            score, sums.sum() / ((5 + lengths[:, k].sum()) / 6) ** 0.6, rtol=1e-5
        )
    assert len(whole.n_best[0]) == 2
    assert whole.n_best[1] == [Translation("", 0.0)]


def test_ids_without_a_piece_are_never_generated(copying):
    """A model's table may have more rows than there are pieces."""
    target = LetterTokenizer(V_TARGET)
    target.unused_ids = (9, 10)
    translate(copying, Pair(PAIR.source, target), ["ab"], constraints=[MinLength(2)])
    translate(copying, PAIR, ["ab"])
    rules = [options["constraints"] for _, options in copying.requests]
    assert rules == [(MinLength(2), ForbiddenTokens((9, 10))), ()]


def test_a_prefix_is_that_of_every_sentence(model):
    """And free of cost if that is said; with it the sentences of a text are joined as ever."""
    free = Prefix([5], is_free=True)
    found = translate(model, SENTENCES, ["Ab. Cd."], target_prefix=free, jit_compile=False)
    source = np.array([[3, 4, END], [5, 6, END]])
    ids, scores = model.generate(source, target_prefix=free, jit_compile=False)
    assert (ids[:, 0] == 5).all()
    assert found.texts == [" ".join(PAIR.target.decode_batch(ids.tolist())).strip()]
    np.testing.assert_allclose(found.scores, [scores.sum()], rtol=1e-5)


def test_texts_of_like_length_share_a_batch(copying):
    translate(copying, PAIR, ["abcde", "a", "abcd", "b"], batch_size=2)
    assert [ids.shape for ids, _ in copying.requests] == [(2, 2), (2, 6)]


def test_only_a_short_batch_of_several_is_filled_up(copying):
    translate(copying, PAIR, ["a", "b", "c"], batch_size=64)
    translate(copying, PAIR, ["a", "b", "c"], batch_size=2)
    assert [len(ids) for ids, _ in copying.requests] == [3, 2, 2]


def test_a_generator_of_texts_is_read_once(copying):
    assert translate(copying, PAIR, (t for t in ["a", "bc"])).texts == ["a", "bc"]


def test_options_reach_the_model(copying):
    options = {"max_length": 4, "constraints": (MinLength(2),), "target_prefix": Prefix([4])}
    short = {"num_beams": 5, "length_penalty": 0.7}
    translate(copying, PAIR, ["a"], **short, **options, jit_compile=False)
    translate(copying, PAIR, ["a"], "greedy", **options, jit_compile=False)
    translate(copying, PAIR, ["a"], search=Search(Greedy(), **options), jit_compile=False)
    expected = [Search(**short, **options), *[Search(Greedy(), **options)] * 2]
    assert [asked for _, asked in copying.requests] == [
        {**vars(search), "jit_compile": False} for search in expected
    ]


@pytest.mark.parametrize("texts", [[], ()])
def test_no_texts_no_translations(texts, copying):
    result = translate(copying, PAIR, texts)
    assert result.texts == []
    assert result.scores.shape == (0,)


def test_one_tokenizer_serves_both_sides():
    model = tiny_model(
        num_encoder_layers=1, num_decoder_layers=1, source_vocabulary_size=V_TARGET, max_length=5
    )
    one = translate(model, LetterTokenizer(V_TARGET), ["ab"], jit_compile=False, batch_size=1)
    two = translate(
        model,
        Pair(LetterTokenizer(V_TARGET), LetterTokenizer(V_TARGET)),
        ["ab"],
        jit_compile=False,
        batch_size=1,
    )
    assert one.texts == two.texts


def test_with_a_model_it_equals_generate(model):
    texts = ["abc", "", "ih"]
    result = translate(model, PAIR, texts, num_beams=2, jit_compile=False, batch_size=4)
    source = np.array([[3, 4, 5, END], [0, 0, 0, 0], [11, 10, END, 0]])
    ids, scores = model.generate(source, num_beams=2, jit_compile=False)
    assert result.texts == PAIR.target.decode_batch(ids.tolist())
    assert (result.texts[1], result.scores[1]) == ("", 0.0)
    np.testing.assert_allclose(result.scores, scores, rtol=1e-5, atol=1e-6)


def test_all_that_a_strategy_returns(model):
    texts = ["abc", "", "ih"]
    strategy = Beam(4, 0.6, num_return=3)
    result = translate(model, PAIR, texts, strategy, jit_compile=False, batch_size=4)
    source = np.array([[3, 4, 5, END], [0, 0, 0, 0], [11, 10, END, 0]])
    ids, scores = model.generate(source, strategy, jit_compile=False)
    for i in (0, 2):
        assert [text for text, _ in result.n_best[i]] == PAIR.target.decode_batch(ids[i].tolist())
        np.testing.assert_allclose([s for _, s in result.n_best[i]], scores[i], rtol=1e-5)
    assert result.n_best[1] == [Translation("", 0.0)]
    assert result.texts == [found[0].text for found in result.n_best]
    np.testing.assert_allclose(result.scores, [found[0].score for found in result.n_best])


def test_where_nothing_was_found_the_text_is_empty_and_the_score_says_so(model):
    impossible = [{"name": "min_length", "source_factor": 2}, {"name": "max_length", "length": 3}]
    result = translate(
        model, PAIR, ["ab", ""], Beam(2, num_return=2), constraints=impossible, jit_compile=False
    )
    assert result.n_best == [[("", -np.inf)], [("", 0.0)]]


def test_a_sample_does_not_depend_on_batches(model):
    texts = ["abc", "hi", "gfe", "abc", "a"]
    strategy = Sample(num_return=2, seed=3)
    one = translate(model, PAIR, texts, strategy, jit_compile=False, batch_size=2)
    two = translate(model, PAIR, texts, strategy, jit_compile=False)
    assert one.texts == two.texts
    assert one.texts[0] == one.texts[3]
    np.testing.assert_allclose(one.scores, two.scores, rtol=1e-5)


@pytest.mark.parametrize("texts", ["a text", ["a", 3], [None], None, 7, [b"a"]])
def test_anything_but_a_list_of_strings_is_named(texts, copying):
    with pytest.raises(ValueError, match=r"works on a list of sentences. Expected a list of str"):
        translate(copying, PAIR, texts)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_has_to_hold_something(batch_size, copying):
    with pytest.raises(ValueError, match=f"batch_size.*Received: {batch_size}"):
        translate(copying, PAIR, ["a"], batch_size=batch_size)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (Pair(LetterTokenizer(7), PAIR.target), "a source vocabulary of 13 tokens. Received: 7"),
        (Pair(PAIR.source, LetterTokenizer(7)), "a target vocabulary of 11 tokens. Received: 7"),
    ],
)
def test_another_models_tokenizer_is_an_error(pair, message, copying):
    with pytest.raises(ValueError, match=message):
        translate(copying, pair, ["a"])
