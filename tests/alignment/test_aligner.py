"""The aligner: posteriors against all paths, the symmetrisation by hand, texts of known links."""

import itertools

import numpy as np
import pytest

from keras_addnorm.alignment import align, grow_diag_final_and
from keras_addnorm.alignment.hmm import P_NULL, Jumps, forward_backward


def by_all_paths(emission, null_emission, matrix):
    """Sums over every path of (source position, whether the token comes from it)."""
    length, size = emission.shape
    links, null, jumps, total = np.zeros((length, size)), np.zeros(length), np.zeros((size,) * 2), 0
    for path in itertools.product(itertools.product(range(size), (False, True)), repeat=length):
        probability, before = 1.0, None
        for t, (place, is_null) in enumerate(path):
            if is_null:
                came = 1 / size if before is None else float(place == before)
                probability *= P_NULL * came * null_emission[t]
            else:
                came = 1 / size if before is None else matrix[before, place]
                probability *= (1 - P_NULL) * came * emission[t, place]
            before = place
        total += probability
        for t, (place, is_null) in enumerate(path):
            if is_null:
                null[t] += probability
            else:
                links[t, place] += probability
                if t:
                    jumps[path[t - 1][0], place] += probability
    return links / total, null / total, jumps / total


def test_posteriors_are_those_of_all_paths():
    rng = np.random.default_rng(0)
    emission, null_emission = rng.random((2, 3, 2)), rng.random((2, 3))
    matrix = rng.random((2, 2))
    matrix /= matrix.sum(1, keepdims=True)
    is_real = np.array([[True, True, True], [True, True, False]])
    found = forward_backward(emission, null_emission, is_real, matrix)
    jumps = 0
    for n, length in enumerate((3, 2)):
        links, null, own = by_all_paths(emission[n, :length], null_emission[n, :length], matrix)
        np.testing.assert_allclose(found.links[n, :length], links, rtol=1e-12)
        np.testing.assert_allclose(found.null[n, :length], null, rtol=1e-12)
        jumps = jumps + own
    np.testing.assert_allclose(found.jumps, jumps, rtol=1e-12)
    assert not found.links[1, 2].any() and not found.null[1, 2]


def test_jumps_are_likely_by_their_width():
    jumps = Jumps()
    np.testing.assert_array_equal(jumps.matrix(3), np.full((3, 3), 1 / 3))
    jumps.add(np.array([[0.0, 5.0], [1.0, 2.0]]))
    assert jumps.counts == {-1: 1.0, 0: 2.0, 1: 5.0}
    expected = 0.8 * np.array([[2 / 7, 5 / 7], [1 / 3, 2 / 3]]) + 0.2 / 2
    np.testing.assert_allclose(jumps.matrix(2), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        ([], [], []),
        ([(0, 0)], [(1, 1)], [(0, 0), (1, 1)]),  # final: neither token has a link
        ([(0, 0)], [(0, 1)], [(0, 0)]),  # final-and: the source has one by then
        ([(0, 0), (1, 1)], [(0, 0)], [(0, 0), (1, 1)]),  # grows over a corner
        ([(0, 0), (0, 1)], [(0, 0)], [(0, 0), (0, 1)]),  # and to the side
        ([(0, 0), (1, 1), (0, 1)], [(0, 0), (1, 1)], [(0, 0), (1, 1)]),  # nothing new in it
        # What has grown grows on: the link at (2, 2) touches none of both.
        ([(0, 0), (1, 1)], [(0, 0), (2, 2)], [(0, 0), (1, 1), (2, 2)]),
    ],
)
def test_two_directions_become_one(forward, backward, expected):
    assert grow_diag_final_and(forward, backward).tolist() == [list(link) for link in expected]


def swapped_sentences(count, seed=0):
    """Each word has one translation, and the first two of a sentence change places."""
    rng = np.random.default_rng(seed)
    pairs, links = [], []
    for _ in range(count):
        words = rng.choice(23, rng.integers(3, 8), replace=False).tolist()
        order = [1, 0, *range(2, len(words))]
        pairs.append((words, [f"w{words[place]}" for place in order]))
        links.append([[source, order.index(source)] for source in range(len(words))])
    return pairs, links


def test_known_links_are_found():
    pairs, links = swapped_sentences(150)
    assert [row.tolist() for row in align(pairs)] == links


def test_the_order_of_words_decides_between_equal_ones():
    pairs, links = swapped_sentences(100)
    for n in range(0, 100, 10):  # Their last word stands there twice.
        source, target = pairs[n]
        pairs[n] = (source + source[-1:], target + target[-1:])
        links[n].append([len(source), len(target)])
    assert [row.tolist() for row in align(pairs)] == links


def test_pairs_without_tokens_and_too_long_ones_have_no_links(monkeypatch):
    pairs, links = swapped_sentences(60)
    monkeypatch.setattr("keras_addnorm.alignment.aligner._SAFE_LENGTH", 9)
    found = align([([], ["x"]), *pairs, (["a"], []), (["a"] * 10, ["b"])])
    assert [row.tolist() for row in found] == [[], *links, [], []]
    assert [row.shape for row in align([([], [])])] == [(0, 2)]


def test_of_a_long_text_every_other_sentence_teaches(monkeypatch):
    pairs, links = swapped_sentences(300)
    total = sum(len(source) * len(target) for source, target in pairs)
    monkeypatch.setattr("keras_addnorm.alignment.aligner._MOST_COOCCURRENCES", total // 2)
    monkeypatch.setattr("keras_addnorm.alignment.aligner._AT_ONCE", 700)
    found = align(pairs)
    right = sum(row.tolist() == known for row, known in zip(found, links, strict=True))
    assert right > 290


@pytest.mark.parametrize("pairs", [["ab"], [("a b", "c")], [(["a"],)], [{"a": 1}]])
def test_what_is_no_pair_of_tokens_is_refused(pairs):
    with pytest.raises(ValueError, match="pairs of two lists of tokens"):
        align(pairs)
