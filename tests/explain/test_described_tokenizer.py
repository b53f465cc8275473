"""What the page is told of a vocabulary. tests/browser compares how it splits."""

import json

import numpy as np
import pytest

from keras_addnorm.data import ByteTokenizer, PieceIds, Tokenizer, sentencepiece_pieces
from keras_addnorm.explain import describe_tokenizer

TEXTS = ["a small house", "a <2de> mouse", "the mouse m² in the house", "no mouse, small <2de>"] * 3


def test_plain_values_for_every_kind():
    for options in (
        {"kind": "bpe", "vocabulary_size": 30},
        {
            "kind": "unigram",
            "vocabulary_size": 99,
            "allow_smaller": True,
            "user_defined_symbols": ["<2de>"],
        },
        {"kind": "bpe", "vocabulary_size": 290, "byte_fallback": True, "normalization": "nfkc"},
    ):
        tokenizer = Tokenizer.train(TEXTS, **options)
        found = json.loads(json.dumps(describe_tokenizer(tokenizer), allow_nan=False))
        pieces = [(text, type_) for text, _, type_ in found["pieces"]]
        assert pieces == [(piece.text, piece.type) for piece in tokenizer.pieces]
        scores = np.float32([score for _, score, _ in found["pieces"]])
        np.testing.assert_array_equal(scores, np.float32([p.score for p in tokenizer.pieces]))
        assert (len(found["byte_ids"]) == 256) == ("byte_fallback" in options)
        assert len(found["normalizer"]["marks"]) == ("user_defined_symbols" in options)


def test_soft_hyphens_are_ignorable_and_letters_are_not():
    ranges = describe_tokenizer(Tokenizer.train(TEXTS, vocabulary_size=24, kind="bpe"))[
        "normalizer"
    ]
    among = [
        any(first <= ord(c) <= last for first, last in ranges["ignorable"])
        for c in ("\u00ad", "\U000e0100", "\ufe0f", "a", "\u4e00", "\U0001f600")
    ]
    assert among == [True, True, True, False, False, False]


def test_what_the_page_cannot_split():
    with pytest.raises(ValueError, match="of the kind 'bytes'"):
        describe_tokenizer(ByteTokenizer())
    proto = Tokenizer.train(TEXTS, vocabulary_size=24, kind="bpe").proto
    ids = PieceIds.around(
        sentencepiece_pieces(proto), first=("<s>", "<pad>", "</s>", "<unk>"), start="</s>"
    )
    with pytest.raises(ValueError, match=r"one with a list of ids\. Expected a SentencePiece"):
        describe_tokenizer(Tokenizer.from_sentencepiece(proto, ids))
