"""Special ids that coincide, as in public models: the start is padding, or the end."""

import functools

import keras
import numpy as np
import pytest
from models_reference import SOURCE, V_SOURCE, V_TARGET, array, tiny_model
from search_reference import (
    beam_reference,
    check_found,
    log_p_of,
    n_best,
    padded,
    random_table,
    search_all,
)

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
)
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.decoding.score import teacher_forced
from keras_addnorm.models import Seq2SeqTransformer

V, L = 5, 4
COINCIDING = {
    "start is pad": SpecialIds(pad_id=0, start_id=0, end_id=1),  # T5, Pegasus
    "start is pad, the last": SpecialIds(pad_id=V - 1, start_id=V - 1, end_id=0),  # Marian
    "start is end": SpecialIds(pad_id=1, start_id=2, end_id=2),  # BART, M2M-100
}
all_ids = pytest.mark.parametrize("ids", COINCIDING.values(), ids=COINCIDING)


def test_what_is_never_generated():
    assert SpecialIds(3, 1, 2).never_generated == (1, 3)
    assert [ids.never_generated for ids in COINCIDING.values()] == [(0,), (V - 1,), (1,)]
    with pytest.raises(ValueError, match=r"pad_id other than end_id\. Received: 2 for both"):
        SpecialIds(2, 1, 2)


@all_ids
def test_a_wide_beam_finds_the_n_best_of_all_sequences(ids):
    table = random_table(2, V, L, seed=31)
    found = search_all(Beam(V**3, 0.6, num_return=9), table, L, ids, is_empty=[False, True])
    expected = n_best(table[0], L, ids, lambda n: ((5 + n) / 6) ** 0.6, 9)
    assert {len(sequence) for _, sequence in expected} > {1}
    check_found(found.ids[0], found.scores[0], expected, L, ids)
    check_found(found.ids[1], found.scores[1], [(0.0, ())], L, ids)


@all_ids
def test_narrow_beams_and_their_groups_do_what_plain_python_does(ids):
    table = random_table(9, V, L, seed=32, scale=1.5)
    for groups in (1, 2):
        strategy = Beam(3, 0.0, 2) if groups == 1 else DiverseBeam(6, groups, 0.7, 0.0, 2)
        found = search_all(strategy, table, L, ids)
        for row, sequences, scores in zip(table, found.ids, found.scores, strict=True):
            expected = beam_reference(
                row, L, ids, lambda n: 1.0, num_beams=3, count=2, num_groups=groups,
                diversity=0.7 if groups > 1 else 0.0, early=False,
            )  # fmt: skip
            check_found(sequences, scores, expected, L, ids)


@all_ids
@pytest.mark.parametrize("strategy", [Greedy("average"), Sample(num_return=3)], ids=str)
def test_independent_rows_end_and_count_their_tokens(strategy, ids):
    table = random_table(9, V, L, seed=33)
    rules = (MinLength(2), NoRepeatNgram(1))
    found = search_all(strategy, table, L, ids, constraints=rules)
    lengths = set()
    for row, sequences, scores in zip(table, found.ids, found.scores, strict=True):
        for sequence, score in zip(sequences.tolist(), scores, strict=True):
            own = [token for token in sequence if token != ids.pad_id]
            assert sequence == padded(own, L, ids)
            assert ids.end_id not in own[:-1] and len(set(own)) == len(own) >= 2
            assert len(own) == L or own[-1] == ids.end_id
            divisor = 1.0 if isinstance(strategy, Sample) else len(own)
            assert score == pytest.approx(log_p_of(row, own) / divisor, abs=1e-5)
            lengths.add(len(own))
    assert len(lengths) > 1


# Whole models. The reference reads the same weights as a model whose padding is an id that is
# never read, so that it masks nothing of a target.

UNREAD = V_TARGET - 1
NEVER_SAID = V_TARGET - 2
MODELS = {
    "start is pad, the last": {"pad_id": UNREAD, "start_id": UNREAD, "end_id": 0},
    "start is end": {"pad_id": 0, "start_id": 2, "end_id": 2},
}


def make(**ids):
    options = {"num_encoder_layers": 1, "num_decoder_layers": 1, "tie_embeddings": False}
    return tiny_model(source_vocabulary_size=V_SOURCE, **options, **ids)


@pytest.fixture(scope="module", params=MODELS)
def pair(request):
    """A model, the same one for full passes, and sources without padding."""
    ids = MODELS[request.param]
    model = make(**ids)
    bias = np.zeros(V_TARGET)
    bias[ids["end_id"]] = 2.0  # Rows of several lengths.
    model.vocabulary_projection.bias.assign(bias)
    full = make(pad_id=NEVER_SAID, start_id=ids["start_id"], end_id=ids["end_id"])
    full.set_weights(model.get_weights())
    return model, full, np.array([[4, 5, 6, 7, 12, ids["end_id"]], [8, 4, 3, 11, 5, ids["end_id"]]])


def log_p_of_the_full_pass(full, source, targets):
    """The log-probabilities of the next token after each of the targets, `(B, V)`."""
    logits = array(full({"source": source, "target": targets}))[:, -1].astype("float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def beam_by_full_passes(full, ids, source, num_beams):
    """Plain Python, one sentence: the best finished hypothesis once `num_beams` have finished."""
    never = {ids.pad_id, ids.start_id, NEVER_SAID} - {ids.end_id}
    alive, finished = [((), 0.0)], []
    for _ in range(L):
        targets = np.array([[ids.start_id, *sequence] for sequence, _ in alive])
        log_p = log_p_of_the_full_pass(full, np.tile(source, (len(alive), 1)), targets)
        candidates = [
            ((*sequence, token), total + log_p[row, token])
            for row, (sequence, total) in enumerate(alive)
            for token in range(V_TARGET)
            if token not in never
        ]
        candidates.sort(key=lambda candidate: -candidate[1])
        finished += [c for c in candidates[:num_beams] if c[0][-1] == ids.end_id]
        alive = [c for c in candidates if c[0][-1] != ids.end_id][:num_beams]
        if len(finished) >= num_beams:
            return max(finished, key=lambda c: c[1])
    return max(finished + alive, key=lambda c: c[1])


def uncompiled(model, source, **options):
    ids, scores = decode(model, keras.ops.convert_to_tensor(source, "int32"), **options)
    return array(ids), array(scores)


def compiled(jit_compile):
    return functools.partial(Seq2SeqTransformer.generate, jit_compile=jit_compile)


SEARCHES = {
    "eager, greedy": (uncompiled, 1),
    "eager, beam": (uncompiled, 3),
    "graph, beam": pytest.param(compiled(False), 3, marks=pytest.mark.slow),
    "xla, greedy": pytest.param(compiled(True), 1, marks=pytest.mark.slow),
    "xla, beam": pytest.param(compiled(True), 3, marks=pytest.mark.slow),
}


@pytest.mark.parametrize(("search", "num_beams"), SEARCHES.values(), ids=SEARCHES)
def test_a_cached_search_is_one_by_full_passes(pair, search, num_beams):
    model, full, source = pair
    ids = model.config.special_ids
    rules = [ForbiddenTokens([NEVER_SAID])]
    found, scores = search(model, source, num_beams=num_beams, max_length=L, constraints=rules)
    for row, sequence, score in zip(source, found.tolist(), scores, strict=True):
        expected, total = beam_by_full_passes(full, ids, row, num_beams)
        assert sequence == padded(expected, L, ids)
        assert score == pytest.approx(total, abs=1e-4)


def test_a_full_pass_gives_the_score_of_the_search(pair):
    model, _, source = pair
    found, scores = uncompiled(model, source, num_beams=3, max_length=L)
    log_p, _ = teacher_forced(model, source, found[:, None], None)
    np.testing.assert_allclose(array(log_p)[:, 0].sum(-1), scores, atol=1e-4)


@pytest.mark.slow
def test_details_and_scores_are_those_of_the_search(pair):
    model, _, source = pair
    options = {"max_length": L, "jit_compile": False}
    found = model.generate(source, Beam(3, num_return=2), return_details=True, **options)
    np.testing.assert_allclose(found.token_log_probabilities.sum(-1), found.scores, atol=1e-4)
    scores = model.score(source, found.ids, jit_compile=False)
    np.testing.assert_allclose(scores.log_probabilities, found.scores, atol=1e-4)
    # A row of padding has nothing to score; an output alone is no start left in.
    nothing = np.full((2, L), model.config.pad_id)
    assert (model.score(source, nothing, jit_compile=False).log_probabilities == 0).all()
    ended = nothing.copy()
    ended[:, 0] = model.config.end_id
    assert (model.score(source, ended, jit_compile=False).log_probabilities < 0).all()


def test_a_start_that_was_left_in_is_named(pair):
    model, _, source = pair
    target = np.full((2, 3), model.config.pad_id)
    target[:, 0], target[:, 1] = model.config.start_id, 5
    with pytest.raises(ValueError, match=r"hold the start token.*Leave the first column out"):
        model.score(source, target)


def test_a_prefix_may_be_padded_where_padding_is_the_start(pair):
    model, _, source = pair
    prefix = np.array([[5, 6], [7, model.config.pad_id]])
    ids, _ = uncompiled(model, source, target_prefix=prefix, max_length=L)
    assert ids[0, :2].tolist() == [5, 6] and ids[1, 0] == 7
    with pytest.raises(ValueError, match="no end token"):
        model.generate(source, target_prefix=[model.config.end_id])
    with pytest.raises(ValueError, match="no padding"):
        model.generate(source[:1], target_prefix=[[5, model.config.pad_id, 5]])


@pytest.mark.parametrize("size", [6, V_TARGET])
def test_a_shortlist_holds_special_ids_beyond_its_size(size):
    """The largest id of all is padding and start: of a short list it is the last."""
    model = make(**MODELS["start is pad, the last"])
    ids = model.config.special_ids
    words = np.where(ids.pad_id == SOURCE, 9, SOURCE)
    source = np.where(SOURCE == 0, ids.pad_id, words)
    rng = np.random.default_rng(8)
    lexicon = Lexicon(
        np.tile(np.arange(V_TARGET, dtype="int32"), (V_SOURCE, 1)),
        rng.random((V_SOURCE, V_TARGET)).astype("float32"),
        rng.random(V_TARGET).astype("float32"),
    )
    shortlist = Shortlist(lexicon, size)
    tokens = array(shortlist.tokens(source, ids))
    places = shortlist.places(ids)
    assert len(set(tokens)) == size
    assert [tokens[places.pad_id], tokens[places.start_id], tokens[places.end_id]] == [
        ids.pad_id,
        ids.start_id,
        ids.end_id,
    ]
    missing = tuple(set(range(V_TARGET)) - set(tokens.tolist()))
    rules = [ForbiddenTokens(missing)] if missing else []
    expected, _ = uncompiled(model, source, constraints=rules, max_length=L)
    found, _ = uncompiled(model, source, shortlist=shortlist, max_length=L)
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) > 1


def test_a_shortlist_of_another_vocabulary_than_the_ids_is_named():
    lexicon = Lexicon(np.zeros((3, 1), "int32"), np.zeros((3, 1)), np.zeros(9))

    class Config:
        source_vocabulary_size = target_vocabulary_size = None
        pad_id, start_id, end_id = 9, 9, 0

    with pytest.raises(ValueError, match=r"ids of the vocabulary, below 9\. Received: 9"):
        Shortlist(lexicon, 5).check(Config)
