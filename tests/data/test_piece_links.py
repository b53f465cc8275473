"""Links of words become links of pieces, and those a part of batches."""

import numpy as np
import pytest

from keras_addnorm.alignment import align
from keras_addnorm.data import (
    ByteTokenizer,
    SubwordSampling,
    TextFormat,
    TokenizerPair,
    align_pieces,
    make_training_batches,
    make_training_dataset,
    piece_links,
)

PAIRS = [
    ("a small house", "ein kleines Haus"),
    ("a mouse", "eine Maus"),
    ("", "leer"),
    ("the mouse  is small", "die Maus ist klein"),
]
WORDS = [[(0, 0), (1, 1), (2, 2)], [(1, 1)], [], [(1, 1), (3, 2), (3, 3)]]
OPTIONS = {"tokens_per_batch": 64, "bucket_lengths": (16, 32)}


@pytest.fixture(scope="module")
def tokenizers():
    return TokenizerPair.train(PAIRS, vocabulary_size=30, kind="bpe", allow_smaller=True)


def test_each_piece_of_a_word_has_its_links():
    found = piece_links([("ab c", "d é")], ByteTokenizer(), [[(0, 1), (1, 0)]])
    # a b space c; d space and the two bytes of é. White space goes with the word behind it.
    expected = [[s, t] for s in (0, 1) for t in (1, 2, 3)] + [[s, 0] for s in (2, 3)]
    assert found[0].tolist() == expected


def test_pieces_of_a_vocabulary_have_the_links_of_their_words(tokenizers):
    found = piece_links(PAIRS, tokenizers, WORDS)
    for (source, target), words, links in zip(PAIRS, WORDS, found, strict=True):
        sides = []
        for text in (source, target):
            ids, word = tokenizers.source.encode(text), -1
            numbers = []
            for piece in (tokenizers.source.pieces[token].text for token in ids):
                word += piece.startswith("▁")
                numbers.append(word)
            sides.append(numbers)
        expected = [
            [i, j]
            for i, s in enumerate(sides[0])
            for j, t in enumerate(sides[1])
            if (s, t) in words
        ]
        assert links.tolist() == expected


def test_an_unknown_character_is_a_part_of_its_word(tokenizers):
    texts = ("a ЖЖa", "Ж eine")
    found = piece_links([texts], tokenizers, [[(1, 0)]])[0]
    source = tokenizers.source.encode(texts[0])
    assert tokenizers.source.unknown_id in source and len(found)
    assert set(found[:, 0].tolist()) == set(range(len(source))) - set(
        range(len(tokenizers.source.encode("a")))
    )
    assert set(found[:, 1].tolist()) == set(range(len(tokenizers.source.encode("Ж"))))


def test_the_aligner_reads_pieces(tokenizers):
    ids = [tuple(tokenizers.source.encode(text) for text in pair) for pair in PAIRS]
    found = align_pieces(PAIRS, tokenizers)
    assert [row.tolist() for row in found] == [row.tolist() for row in align(ids)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (WORDS[:3], "a line for each of 4 pairs"),
        ([*WORDS, []], "5 lines"),
        ([[(0, 3)], [], [], []], r"sentence pair 1 is outside .* 3 in the source and 3 in"),
        ([[], [(-1, 0)], [], []], "sentence pair 2 is outside"),
    ],
)
def test_links_of_other_texts_are_refused(tokenizers, words, message):
    with pytest.raises(ValueError, match=message):
        piece_links(PAIRS, tokenizers, words)


def by_the_definition(links, inputs, labels, shifts=(0, 0)):
    """1 / (links of target token t), divided by the real labels of the batch."""
    expected = np.zeros((*labels.shape, labels.shape[1]))
    for row, pair in enumerate(links):
        for s, t in pair:
            count = sum(other == t for _, other in pair)
            expected[row, t + shifts[1], s + shifts[0]] = 1 / count
    return expected / np.count_nonzero(labels)


def test_batches_have_the_links_of_their_rows(tokenizers):
    links = piece_links(PAIRS, tokenizers, WORDS)
    batches = make_training_batches(PAIRS, tokenizers, **OPTIONS, alignments=links)
    seen = 0
    for inputs, labels in (batches[n] for n in range(len(batches))):
        rows = [
            next(
                links[n]
                for n, (text, _) in enumerate(PAIRS)
                if [*tokenizers.source.encode(text), 2] == source[source != 0].tolist()
            ).tolist()
            for source in inputs["source"]
            if source.any()
        ]
        seen += len(rows)
        expected = by_the_definition(rows, inputs, labels)
        assert inputs["alignment"].dtype == np.float32
        np.testing.assert_allclose(inputs["alignment"], expected, rtol=1e-6)
    assert seen == 3


def test_tokens_around_a_text_have_no_links(tokenizers):
    around = TextFormat(source_prefix=("a",), target_prefix=("e", "e"))
    pair = TokenizerPair(tokenizers.source, tokenizers.target, around)
    links = piece_links(PAIRS[:1], pair, WORDS[:1])
    inputs, labels = make_training_batches(PAIRS[:1], pair, **OPTIONS, alignments=links)[0]
    expected = by_the_definition([links[0].tolist()], inputs, labels, shifts=(1, 2))
    np.testing.assert_allclose(inputs["alignment"], expected, rtol=1e-6)


def test_weights_of_rows_are_in_the_links(tokenizers):
    links = piece_links(PAIRS, tokenizers, WORDS)
    options = {**OPTIONS, "tokens_per_batch": 16, "alignments": links}
    options |= {"batches_per_update": 2, "repeats": 2}
    dataset = make_training_dataset(PAIRS, tokenizers, **options)
    plain = make_training_batches(PAIRS, tokenizers, **{**options, "batches_per_update": 1})
    for n, (inputs, _, weights) in enumerate(dataset.take(len(plain)).as_numpy_iterator()):
        own, labels = plain[n]
        expected = own["alignment"] * np.count_nonzero(labels) * weights[:, :, None]
        np.testing.assert_allclose(inputs["alignment"], expected, rtol=1e-6)


def test_a_row_of_a_process_has_its_links(tokenizers):
    links = piece_links(PAIRS, tokenizers, WORDS)
    options = {**OPTIONS, "rows_multiple_of": 2, "alignments": links, "shuffle_seed": 3}
    whole = make_training_batches(PAIRS, tokenizers, **options)[0][0]["alignment"]
    parts = [
        make_training_batches(PAIRS, tokenizers, **options, row_share=(n, 2))[0][0]["alignment"]
        for n in range(2)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_other_links_are_another_plan(tokenizers):
    links = piece_links(PAIRS, tokenizers, WORDS)
    plans = [
        make_training_batches(PAIRS, tokenizers, **OPTIONS, alignments=given).plan
        for given in (None, links, [*links[:3], links[3][:-1]], links)
    ]
    assert plans[1] == plans[3] and len(set(plans)) == 3


def test_links_that_do_not_belong_to_the_pieces_are_refused(tokenizers):
    links = piece_links(PAIRS, tokenizers, WORDS)
    for given in (links[:3], [np.array([[99, 0]]), *links[1:]]):
        with pytest.raises(ValueError, match=r"pairs|outside"):
            make_training_batches(PAIRS, tokenizers, **OPTIONS, alignments=given)
    sampling = {"sampling": SubwordSampling(0.1), "shuffle_seed": 1}
    with pytest.raises(ValueError, match="Received: both"):
        make_training_batches(PAIRS, tokenizers, **OPTIONS, alignments=links, **sampling)
