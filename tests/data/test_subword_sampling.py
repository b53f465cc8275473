"""Sampled pieces: against SentencePiece's own sampling, and what is left alone."""

import itertools
from collections import Counter

import pytest

from keras_addnorm.data import SubwordSampling, Tokenizer
from keras_addnorm.data.subword_sampling import Sampler

TEXTS = [
    "the small dog runs over the green field",
    "a small cat sleeps under the old table",
    "children run through the garden and laugh",
    "the old gardener reads a newspaper at the garden table",
]


@pytest.fixture(scope="module", params=[("bpe", 60), ("unigram", 40)])
def tokenizer(request):
    kind, size = request.param
    return Tokenizer.train(TEXTS * 5, vocabulary_size=size, kind=kind)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["gardener", "newspaper", "children"])
@pytest.mark.parametrize("alpha", [0.1, 0.4])
def test_segmentations_are_as_frequent_as_sentencepiece_has_them(tokenizer, word, alpha):
    draws = 20_000
    ours = Counter(map(tuple, tokenizer.sample_batch([word] * draws, SubwordSampling(alpha), 1)))
    theirs = Counter(
        tuple(row)
        for row in tokenizer._processor.encode(
            [word] * draws, enable_sampling=True, alpha=alpha, nbest_size=-1
        )
    )
    assert len(ours) >= 2
    for split in ours | theirs:
        one, other = ours[split], theirs[split]
        assert abs(one - other) <= 5 * (one + other + 1) ** 0.5, (split, one, other)


def test_all_merges_give_the_usual_pieces():
    tokenizer = Tokenizer.train(TEXTS * 5, vocabulary_size=60, kind="bpe")
    words = Sampler(tokenizer.pieces, "bpe", SubwordSampling(0.5))._words
    for word in {word for text in TEXTS for word in text.split()}:
        pieces = words.merged(f"\u2581{word}", itertools.repeat(True))
        assert pieces == [tokenizer.pieces[token].text for token in tokenizer.encode(word)]
        assert words.merged(word, itertools.repeat(False)) == list(word)


def test_words_with_unknown_characters_stay_as_they_are(tokenizer):
    text = "the gärdener runs"
    usual = tokenizer.encode(text)
    assert tokenizer.unknown_id in usual
    word = tokenizer.encode("gärdener")
    rows = tokenizer.sample_batch([text] * 50, SubwordSampling(0.3), 1)
    assert len(set(map(tuple, rows))) > 1
    for row in rows:
        start = row.index(tokenizer.unknown_id) - word.index(tokenizer.unknown_id)
        assert row[start : start + len(word)] == word
        assert tokenizer.decode(row) == tokenizer.decode(usual)


def test_texts_without_words_have_no_pieces(tokenizer):
    assert tokenizer.sample_batch(["", "  "], SubwordSampling(0.3), 1) == [[], []]
    assert tokenizer.sample_batch([], SubwordSampling(0.3), 1) == []
