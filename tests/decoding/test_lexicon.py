"""IBM's first model against the textbook's loops, and what is kept of it."""

import collections
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from keras_addnorm.decoding import Lexicon, Shortlist, shortlist

SIZES = {"source_vocabulary_size": 9, "target_vocabulary_size": 12}


def random_pairs(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        ([*rng.integers(3, 9, rng.integers(1, 6)).tolist(), 2], [*rng.integers(3, 12, 4), 2])
        for _ in range(count)
    ]


def by_the_textbook(pairs, iterations):
    """Brown et al., 1993: expected counts of each pair of tokens, one sentence after the other."""
    p = collections.defaultdict(lambda: 1.0)
    for _ in range(iterations):
        count, total = collections.Counter(), collections.Counter()
        for source, target in pairs:
            for t in target:
                norm = sum(p[s, t] for s in source)
                for s in source:
                    count[s, t] += p[s, t] / norm
                    total[s] += p[s, t] / norm
        p = {(s, t): count[s, t] / total[s] for s, t in count}
    return p


@pytest.mark.parametrize("iterations", [1, 4])
def test_probabilities_are_the_textbooks(iterations):
    pairs = random_pairs(20)
    found = Lexicon.estimate(pairs, **SIZES, iterations=iterations)
    expected = np.zeros((9, 12))
    for (s, t), p in by_the_textbook(pairs, iterations).items():
        expected[s, t] = p
    dense = np.zeros((9, 12))
    np.add.at(dense, (np.arange(9)[:, None], found.candidates), found.probabilities)
    np.testing.assert_allclose(dense, expected, rtol=1e-5, atol=1e-7)
    assert (np.diff(found.probabilities) <= 0).all()
    frequencies = np.zeros(12)
    for _, target in pairs:
        np.add.at(frequencies, target, 1 / len(pairs))
    np.testing.assert_allclose(found.frequencies, frequencies, rtol=1e-5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("candidates", np.full((6, 2), 12)),
        ("candidates", np.full((6, 2), -1)),
        ("candidates", np.zeros((6, 2))),
        ("candidates", np.zeros((6, 3), int)),
        ("probabilities", np.full((6, 2), np.nan)),
        ("frequencies", np.full(12, np.inf)),
        ("frequencies", np.zeros((12, 1))),
        ("frequencies", np.array(["a"] * 12)),
    ],
)
def test_arrays_that_are_no_lexicon_make_no_shortlist(field, value):
    arrays = {"candidates": np.zeros((6, 2), int), "probabilities": np.ones((6, 2))}
    arrays["frequencies"] = np.ones(12)
    assert Shortlist(Lexicon(**arrays), 4).vocabulary_size == 12
    with pytest.raises(ValueError, match="The arrays are not those of a lexicon"):
        Shortlist(Lexicon(**(arrays | {field: value})), 4)


def test_the_most_probable_are_kept():
    pairs = random_pairs(20)
    whole, few = (
        Lexicon.estimate(pairs, **SIZES),
        Lexicon.estimate(pairs, **SIZES, num_candidates=3),
    )
    np.testing.assert_array_equal(few.candidates, whole.candidates[:, :3])
    np.testing.assert_array_equal(few.probabilities, whole.probabilities[:, :3])


def test_it_learns_which_token_means_which():
    rng = np.random.default_rng(1)
    sources = [[*rng.choice(np.arange(3, 9), 4, replace=False), 2] for _ in range(60)]
    pairs = [(source, [11 - s if s > 2 else 2 for s in source[::-1]]) for source in sources]
    found = Lexicon.estimate(pairs, **SIZES, iterations=20)
    assert found.candidates[3:, 0].tolist() == [8, 7, 6, 5, 4, 3]
    assert found.probabilities[3:, 0].min() > 0.9


def test_of_a_long_text_sentences_are_left_out_evenly(monkeypatch):
    pairs = [([3 + i % 6, 2], [3 + i % 9, 2]) for i in range(30)]
    fourth = Lexicon.estimate(pairs[::4], **SIZES)
    monkeypatch.setattr(shortlist, "_MOST_COOCCURRENCES", 4 * 10)
    thinned = Lexicon.estimate(iter(pairs), **SIZES)
    for name, array in vars(fourth).items():
        np.testing.assert_array_equal(getattr(thinned, name), array)


def test_it_is_saved_and_loaded(tmp_path):
    found = Lexicon.estimate(random_pairs(5), **SIZES)
    found.save(tmp_path / "lexicon.npz")
    again = Lexicon.load(tmp_path / "lexicon.npz")
    for name, array in vars(found).items():
        np.testing.assert_array_equal(getattr(again, name), array)
        assert getattr(again, name).dtype == array.dtype


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "other"])
def test_a_file_that_is_no_lexicon_is_named(tmp_path, damage):
    path = tmp_path / "lexicon.npz"
    Lexicon.estimate(random_pairs(5), **SIZES).save(path)
    whole = path.read_bytes()
    if damage == "other":
        np.savez(path, weights=np.zeros(3))
    else:
        path.write_bytes({"empty": b"", "cut": whole[:-30], "text": b"no arrays"}[damage])
    with pytest.raises(ValueError, match=r"Received: .*lexicon.npz.*Delete it"):
        Lexicon.load(path)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "no sentence pairs"),
        ([([], [3])], "no sentence pairs"),
        ([([9], [3])], r"A source id lies outside the vocabulary.*0 <= id < 9.*from 9 to 9"),
        ([([3], [-1])], "A target id lies outside"),
    ],
)
def test_bad_pairs_are_named(pairs, message):
    with pytest.raises(ValueError, match=message):
        Lexicon.estimate(pairs, **SIZES)


def test_links_are_counted():
    pairs = [([5, 6, 5, 2], [8, 9, 2]), ([5, 7, 2], [8, 8, 10, 2]), ([], [3, 2]), ([4, 2], [2])]
    links = [[(0, 0), (2, 0), (1, 1)], np.array([[0, 1], [0, 2], [1, 2]]), [], []]
    found = Lexicon.from_links(pairs, links, **SIZES)
    expected = np.zeros((9, 12))
    expected[5, [8, 10]] = 3 / 4, 1 / 4  # Linked three times with 8, once with 10.
    expected[6, 9] = expected[7, 10] = 1
    dense = np.zeros((9, 12))
    np.add.at(dense, (np.arange(9)[:, None], found.candidates), found.probabilities)
    np.testing.assert_allclose(dense, expected, rtol=1e-6)
    assert found.candidates[5].tolist() == [8, 10]
    frequencies = np.zeros(12)
    for _, target in pairs:
        np.add.at(frequencies, target, 1 / 4)
    np.testing.assert_allclose(found.frequencies, frequencies, rtol=1e-6)
    one = Lexicon.from_links(pairs, links, **SIZES, num_candidates=1)
    assert one.candidates.shape == (9, 1)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([[], []], "no links"),
        ([[(0, 0)]], "1 and 2"),
        ([[(3, 0)], []], r"positions below \[3, 3\]"),
        ([[], [(0, -1)]], "outside its sentences"),
    ],
)
def test_links_of_other_sentences_are_refused(links, message):
    with pytest.raises(ValueError, match=message):
        Lexicon.from_links([([5, 6, 2], [8, 9, 2])] * 2, links, **SIZES)


def test_a_file_of_a_hundred_megabytes_of_zeros_is_refused(tmp_path):
    path = tmp_path / "lexicon.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("candidates.npy", "w") as file,
    ):
        zeros = np.zeros((100, 1 << 18), np.int32)
        np.lib.format.write_array(file, zeros)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"a whole lexicon.*lexicon\.npz"):
            Lexicon.load(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 24


@pytest.mark.parametrize(
    ("name", "value"),
    [("iterations", 10**9), ("num_candidates", 2**31), ("target_vocabulary_size", 10**19)],
)
def test_numbers_without_a_bound_are_refused(name, value):
    with pytest.raises(ValueError, match=f"an int {name} >= 1 and <="):
        Lexicon.estimate(random_pairs(2), **{**SIZES, name: value})


def _write_half(file, **arrays):
    file.write(b"half")
    raise OSError("No space")


def test_a_lexicon_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lexicon = Lexicon.estimate(random_pairs(20), **SIZES)
    lexicon.save("mine")  # gets the ending
    assert Lexicon.load("mine.npz").candidates.tolist() == lexicon.candidates.tolist()
    with pytest.raises(ValueError, match="A path is empty"):
        lexicon.save("")
    monkeypatch.setattr(np, "savez_compressed", _write_half)
    with pytest.raises(OSError, match="No space"):
        lexicon.save("mine.npz")
    assert os.listdir() == ["mine.npz"]
    assert Lexicon.load("mine.npz").candidates.tolist() == lexicon.candidates.tolist()
    os.mkfifo("pipe.npz")
    monkeypatch.setattr("keras_addnorm.basics.atomic._SECONDS_FOR_A_READER", 0.0)
    with pytest.raises(ValueError, match="a pipe that nobody reads"):
        lexicon.save("pipe.npz")
