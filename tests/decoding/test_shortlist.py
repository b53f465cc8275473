"""Searches among the tokens of a shortlist."""

import dataclasses
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from models_reference import SOURCE, V_SOURCE, V_TARGET, array, tiny_model

from keras_addnorm.decoding import (
    Beam,
    DiverseBeam,
    ForbiddenTokens,
    Greedy,
    Lexicon,
    MinLength,
    NoRepeatNgram,
    Sample,
    Shortlist,
    decode,
    generate,
    shortlist,
    translate,
)
from keras_addnorm.decoding.decoder import SpecialIds

IDS = SpecialIds(pad_id=0, start_id=1, end_id=2)
L, C = 6, 4


@pytest.fixture(scope="module")
def lexicon():
    rng = np.random.default_rng(8)
    candidates = rng.permuted(np.tile(np.arange(V_TARGET), (V_SOURCE, 1)), axis=1)[:, :C]
    return Lexicon(
        candidates.astype("int32"),
        rng.random((V_SOURCE, C)).astype("float32"),
        rng.random(V_TARGET).astype("float32"),
    )


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def model(request):
    return tiny_model(num_encoder_layers=1, num_decoder_layers=1, tie_embeddings=request.param)


def expected_tokens(lexicon, source_ids, size, ids=IDS):
    """By the definition: expected counts, sentence by sentence; the size best."""
    counts = np.zeros(V_TARGET)
    for row in source_ids:
        tokens = [token for token in row if token != ids.pad_id]
        for token in tokens:
            np.add.at(counts, lexicon.candidates[token], lexicon.probabilities[token])
        counts += 0.1 * lexicon.frequencies if tokens else 0.0
    special = {ids.pad_id, ids.start_id, ids.end_id}
    others = [t for t in np.argsort(-counts, kind="stable") if t not in special]
    return special | set(others[: size - len(special)])


@pytest.mark.parametrize("ids", [IDS, SpecialIds(pad_id=4, start_id=1, end_id=3)])
@pytest.mark.parametrize("size", [5, 7, V_TARGET])
def test_the_tokens_that_are_expected_most(lexicon, size, ids):
    source = np.where(SOURCE == 0, ids.pad_id, SOURCE)
    tokens = array(Shortlist(lexicon, size).tokens(source, ids))
    assert len(tokens) == size
    assert set(tokens) == expected_tokens(lexicon, source, size, ids)
    assert [tokens[i] for i in ids.__dict__.values()] == [*ids.__dict__.values()]
    # Neither rows nor columns of padding change anything.
    padded = np.pad(source, ((0, 2), (0, 3)), constant_values=ids.pad_id)
    np.testing.assert_array_equal(Shortlist(lexicon, size).tokens(padded, ids), tokens)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "constraints"),
    [
        (Greedy(), ()),
        (Beam(3, length_penalty=0.6, num_return=2), (ForbiddenTokens((7, 9)), MinLength(3))),
        (DiverseBeam(4, 2, coverage_penalty=0.2), (NoRepeatNgram(1),)),
    ],
)
def test_a_list_of_all_tokens_changes_nothing(model, lexicon, strategy, constraints):
    options = {"strategy": strategy, "max_length": L, "constraints": constraints}
    options["jit_compile"] = False  # XLA is another test's.
    ids, scores = model.generate(SOURCE, **options)
    listed = model.generate(SOURCE, **options, shortlist=Shortlist(lexicon, V_TARGET))
    np.testing.assert_array_equal(listed[0], ids)
    np.testing.assert_allclose(listed[1], scores, rtol=1e-5)


def log_p_among(model, source, sequences, tokens):
    """Teacher-forced sums of log-probabilities, the softmax over some tokens alone."""
    start = np.full((len(sequences), 1), IDS.start_id)
    logits = array(model({"source": source, "target": np.hstack([start, sequences])[:, :-1]}))
    own = np.take_along_axis(logits, sequences[..., None], -1)[..., 0]
    total = np.log(np.exp(logits[..., sorted(tokens)].astype("float64")).sum(-1))
    return ((own - total) * (sequences != IDS.pad_id)).sum(-1)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strategy", [Greedy(), Beam(3), Sample(seed=4)], ids=str)
def test_scores_are_probabilities_among_its_tokens(model, lexicon, strategy, jit_compile):
    size = 7
    tokens = expected_tokens(lexicon, SOURCE, size)
    ids, scores = model.generate(
        SOURCE,
        strategy,
        max_length=L,
        shortlist=Shortlist(lexicon, size),
        jit_compile=jit_compile,
    )
    assert set(ids.flat) <= tokens
    np.testing.assert_allclose(
        scores, log_p_among(model, SOURCE, ids, tokens), rtol=1e-5, atol=1e-5
    )


@pytest.mark.slow
def test_greedy_search_finds_the_best_of_its_tokens(model, lexicon):
    missing = tuple(set(range(V_TARGET)) - expected_tokens(lexicon, SOURCE, 7))
    rules = [ForbiddenTokens(missing)]
    among, _ = model.generate(
        SOURCE, max_length=L, jit_compile=False, shortlist=Shortlist(lexicon, 7)
    )
    expected, _ = model.generate(SOURCE, max_length=L, jit_compile=False, constraints=rules)
    np.testing.assert_array_equal(among, expected)


@pytest.mark.slow
def test_rules_speak_of_the_vocabularys_tokens(model, lexicon):
    shortlist = Shortlist(lexicon, 7)
    free, _ = model.generate(SOURCE, max_length=L, jit_compile=False, shortlist=shortlist)
    forbidden = int(max(free.flat))
    assert forbidden > IDS.end_id
    rules = [ForbiddenTokens((forbidden,)), MinLength(3)]
    ids, _ = model.generate(
        SOURCE, max_length=L, jit_compile=False, shortlist=shortlist, constraints=rules
    )
    assert forbidden not in ids and (ids[:, :3] > IDS.end_id).all()
    missing = set(range(V_TARGET)) - expected_tokens(lexicon, SOURCE, 7)
    rules.append(ForbiddenTokens(tuple(missing)))
    expected, _ = model.generate(SOURCE, max_length=L, jit_compile=False, constraints=rules)
    np.testing.assert_array_equal(ids, expected)


@pytest.mark.slow
def test_another_list_is_another_search(lexicon):
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1)
    all_found = [
        set(model.generate(SOURCE, max_length=L, shortlist=Shortlist(lexicon, size))[0].flat)
        for size in (4, 5, 4)
    ]
    for found, size in zip(all_found, (4, 5, 4), strict=True):
        assert found <= expected_tokens(lexicon, SOURCE, size)


@pytest.mark.slow
@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_loop_computes_no_other_logits(lexicon, num_beams):
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1)

    def sizes(shortlist):
        def run(ids):
            return decode(model, ids, num_beams=num_beams, max_length=L, shortlist=shortlist)

        program = tf.function(run, jit_compile=True, autograph=False)
        hlo = program.experimental_get_compiler_ir(tf.constant(SOURCE, tf.int32))("optimized_hlo")
        products = re.findall(r"= \w+\[([\d,]+)\]\S* dot\(", hlo)
        return {int(shape.split(",")[-1]) for shape in products}

    assert V_TARGET in sizes(None)
    assert V_TARGET not in (found := sizes(Shortlist(lexicon, 8))) and 8 in found


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("size", [7, V_TARGET])
def test_a_decoder_whose_projection_nobody_knows(lexicon, size, jit_compile):
    """All of its logits are computed, and those of the list are looked at."""

    class Hidden:
        def __init__(self, inner):
            self.encode = lambda source: inner.encode(source)
            self.initial_cache = lambda *arguments: inner.initial_cache(*arguments)
            self.decode_step = lambda *arguments: inner.decode_step(*arguments)

    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1)
    options = {"num_beams": 3, "max_length": L, "shortlist": Shortlist(lexicon, size)}
    expected = model.generate(SOURCE, **options)
    found = generate(Hidden(model), SOURCE, jit_compile=jit_compile, **options)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_texts_are_translated_with_it():
    class Words:
        """A token for each word: its number."""

        vocabulary_size = 11

        def encode_batch(self, texts):
            return [[int(word) for word in text.split()] for text in texts]

        def decode_batch(self, rows):
            return [" ".join(str(token) for token in row if token > IDS.end_id) for row in rows]

    model = tiny_model(source_vocabulary_size=11, num_encoder_layers=1, num_decoder_layers=1)
    lexicon = Lexicon.estimate(
        [([3, 2], [5, 2]), ([4, 2], [6, 2])], source_vocabulary_size=11, target_vocabulary_size=11
    )
    found = translate(
        model, Words(), ["3", "4 3", ""], max_length=L, shortlist=Shortlist(lexicon, 5)
    )
    assert found.texts[2] == ""
    assert set(" ".join(found.texts).split()) <= {"5", "6"}


@pytest.mark.parametrize("size", [3, V_TARGET + 1])
def test_a_size_that_does_not_fit_is_named(lexicon, size):
    with pytest.raises(ValueError, match=f"size from 4 to {V_TARGET}. Received: {size}"):
        Shortlist(lexicon, size)


def test_what_does_not_go_together_is_named(lexicon):
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1)
    with pytest.raises(ValueError, match="Received: both"):
        model.generate(SOURCE, shortlist=Shortlist(lexicon, 5), target_prefix=[[5], [6], [7]])
    for sizes, message in (
        ({"source_vocabulary_size": V_SOURCE + 1}, "does not belong to the model"),
        ({"target_vocabulary_size": V_TARGET + 1}, f"Received: {V_SOURCE} and {V_TARGET}"),
    ):
        other = tiny_model(**sizes, num_encoder_layers=1, num_decoder_layers=1)
        with pytest.raises(ValueError, match=message):
            other.generate(SOURCE, shortlist=Shortlist(lexicon, 5))


def test_keras_operations_alone(lexicon):
    """The choice is traced into exports, where neither size of the batch is known."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def choose(source_ids):
        return Shortlist(lexicon, 7).tokens(source_ids, IDS)

    found = keras.ops.convert_to_numpy(choose(tf.constant(SOURCE, tf.int32)))
    assert set(found) == expected_tokens(lexicon, SOURCE, 7)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("candidates", lambda x: x + 13),
        ("candidates", lambda x: -1 - x),
        ("candidates", lambda x: x + 0.5),
        ("candidates", lambda x: x.astype(str)),
        ("candidates", lambda x: x[:, :2]),
        ("candidates", lambda x: x[0]),
        ("probabilities", lambda x: x * np.nan),
        ("probabilities", lambda x: -x - 1),
        ("probabilities", lambda x: x * 1j),
        ("frequencies", lambda x: x + np.inf),
        ("frequencies", lambda x: x[:2]),
        ("frequencies", lambda x: x[:, None]),
    ],
)
def test_a_file_whose_numbers_are_no_lexicon_is_refused(tmp_path, name, change):
    """With a digest that is right, as of a run from somebody else."""
    rng = np.random.default_rng(0)
    arrays = {
        "candidates": rng.integers(0, 13, (11, 3)).astype("int32"),
        "probabilities": rng.random((11, 3), "float32"),
        "frequencies": rng.random(13, "float32"),
    }
    path = tmp_path / "lexicon.npz"
    np.savez_compressed(path, **arrays)
    np.testing.assert_array_equal(Lexicon.load(path).candidates, arrays["candidates"])
    np.savez_compressed(path, **{**arrays, name: change(arrays[name])})
    with pytest.raises(ValueError, match="a file with a whole lexicon"):
        Lexicon.load(path)


@pytest.mark.parametrize("giant", [0, 1, 20])
def test_a_sentence_of_any_length_takes_the_place_of_no_other(giant, monkeypatch):
    """One alone above the limit pushed out all others, which nobody heard of."""
    monkeypatch.setattr(shortlist, "_MOST_COOCCURRENCES", 100)
    pairs = [([5, 2], [7, 2])] * 20
    pairs.insert(giant, (list(range(3, 14)), list(range(3, 14))))
    lexicon = Lexicon.estimate(pairs, source_vocabulary_size=14, target_vocabulary_size=14)
    assert {*lexicon.candidates[5]} == {7, 2} and lexicon.frequencies[2] == 1
    with pytest.raises(ValueError, match="no sentence pairs"):
        Lexicon.estimate([pairs[giant]], source_vocabulary_size=14, target_vocabulary_size=14)


def test_arrays_that_a_search_cannot_compute_with(lexicon):
    for name in ("probabilities", "frequencies"):
        large = getattr(lexicon, name).astype("float64") + 1e39
        with pytest.raises(ValueError, match="finite in float32"):
            dataclasses.replace(lexicon, **{name: large})
    with pytest.raises(TypeError, match=r"three of NumPy.*ndarray, list, ndarray"):
        Lexicon(lexicon.candidates, lexicon.probabilities.tolist(), lexicon.frequencies)
    with pytest.raises(ValueError, match="source_vocabulary_size"):
        Lexicon.estimate([([1], [1])], source_vocabulary_size=2**31 - 1, target_vocabulary_size=2)
