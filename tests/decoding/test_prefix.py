"""Forced tokens at the beginning of outputs, which cost what the model says, or nothing."""

import numpy as np
import pytest
import tensorflow as tf
from models_reference import SOURCE, array, tiny_model
from search_reference import check_found, log_p_of, n_best, random_table, search_all

from keras_addnorm.decoding import (
    Beam,
    DiverseBeam,
    Greedy,
    Lexicon,
    NoRepeatNgram,
    Prefix,
    Sample,
    Shortlist,
    decode,
)
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.decoding.engine import TFGraphEngine, XLAEngine
from keras_addnorm.decoding.generate import run_search
from keras_addnorm.decoding.search import Search

V, L, END = 6, 4, 2
ALL_IDS = {
    "usual": SpecialIds(0, 1, END),
    "start is pad": SpecialIds(0, 0, END),
    "start is end": SpecialIds(0, END, END),
}
all_ids = pytest.mark.parametrize("ids", ALL_IDS.values(), ids=ALL_IDS)
STRATEGIES = [
    Greedy(0.6),
    Beam(3, 0.6, 3),
    DiverseBeam(4, 2, 0.5, 0.6, 4),
    Sample(2.0, num_return=5),
]


@all_ids
@pytest.mark.parametrize("penalty", ["none", "average"])
def test_a_wide_beam_ranks_by_what_is_not_free(ids, penalty):
    """The forced token adds nothing to the sum, and one to the length."""
    table = random_table(1, V, L, seed=41, scale=1.0)
    own = table[0, 0, 4]
    found = search_all(Beam(V**3, penalty, 7), table, L, ids, prefix=Prefix([4], is_free=True))

    def divisor(length):
        return 1.0 if penalty == "none" else length

    every = n_best(table[0], L, ids, lambda n: 1.0, 10**6, lambda s: s[0] == 4)
    expected = sorted(((total - own) / divisor(len(s)), s) for total, s in every)[::-1][:7]
    check_found(found.ids[0], found.scores[0], expected, L, ids)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_every_strategy_leaves_its_cost_out(strategy):
    """A prefix of several tokens for some rows; where a row has none nothing changes."""
    ids = ALL_IDS["usual"]
    table = random_table(3, V, L, seed=42, scale=1.0)
    prefix = Prefix(np.array([[5, 5], [4, 0], [0, 0]]), is_free=True)
    rules = (NoRepeatNgram(1),)
    found = search_all(strategy, table, L, ids, prefix=prefix, constraints=rules)
    assert (found.ids[0, :, :2] == 5).all() and (found.ids[1, :, 0] == 4).all()
    without = search_all(strategy, table, L, ids, constraints=rules)
    np.testing.assert_array_equal(found.ids[2], without.ids[2])
    np.testing.assert_array_equal(found.scores[2], without.scores[2])
    alpha = getattr(strategy.length_penalty, "alpha", 0.0)
    for row, begins, sequences, scores in zip(
        table, [(5, 5), (4,), ()], found.ids, found.scores, strict=True
    ):
        for sequence, score in zip(sequences.tolist(), scores, strict=True):
            own = tuple(token for token in sequence if token != ids.pad_id)
            total = log_p_of(row, own) - log_p_of(row, begins)
            assert score == pytest.approx(total / ((5 + len(own)) / 6) ** alpha, abs=1e-4)


# Whole models.


@pytest.fixture(scope="module")
def model():
    return tiny_model(num_encoder_layers=1, num_decoder_layers=1, tie_embeddings=False)


def greedy_from(model, source, token, length):
    """Plain full passes: the outputs that begin with a token, and their sums without its cost."""
    config, ids = model.config, np.full((len(source), 1), token)
    sums, is_done = np.zeros(len(source)), np.zeros(len(source), bool)
    start = np.full((len(source), 1), config.start_id)
    for _ in range(length - 1):
        target = np.hstack([start, ids])
        logits = array(model({"source": source, "target": target}))[:, -1].astype("float64")
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        log_p[:, [config.pad_id, config.start_id]] = -np.inf
        best = log_p.argmax(-1)
        sums += np.where(is_done, 0.0, log_p.max(-1))
        ids = np.hstack([ids, np.where(is_done, config.pad_id, best)[:, None]])
        is_done |= best == config.end_id
    return ids, sums


def test_a_cached_search_goes_on_from_it(model):
    source = SOURCE[[0, 2]]
    expected, sums = greedy_from(model, source, 7, L)
    free = Prefix([7], is_free=True)
    ids, scores = decode(model, tf.constant(source, tf.int32), max_length=L, target_prefix=free)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, sums, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_generate_takes_one_for_all_sentences(model, jit_compile):
    options = {"max_length": L, "jit_compile": jit_compile}
    source = SOURCE[[0, 2]]
    expected, sums = greedy_from(model, source, 7, L)
    free = Prefix([7], is_free=True)
    ids, scores = model.generate(source, "greedy", target_prefix=free, **options)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, sums, atol=1e-4)
    # With its cost; the same program must not serve both.
    ids, costly = model.generate(source, "greedy", target_prefix=[7], **options)
    np.testing.assert_array_equal(ids, expected)
    own = model.score(source, ids, jit_compile=False).token_log_probabilities[:, 0]
    np.testing.assert_allclose(costly, sums + own, atol=1e-4)
    assert (own < -0.01).all()


@pytest.mark.slow
def test_details_and_scores_leave_its_cost_out(model):
    options = {"max_length": L, "jit_compile": False}
    prefix = Prefix([[7, 0], [8, 3], [0, 0]], is_free=True)
    strategy = Beam(3, num_return=2)
    found = model.generate(SOURCE, strategy, target_prefix=prefix, return_details=True, **options)
    log_p = found.token_log_probabilities
    assert (log_p[0, :, 0] == 0).all() and (log_p[1, :, :2] == 0).all()
    assert (log_p[0, :, 1] < 0).all() and (log_p[2, :, 0] < 0).all()
    assert (found.alignments[0, :, 0] >= 0).all()
    np.testing.assert_allclose(log_p.sum(-1), found.scores, atol=1e-4)
    scores = model.score(SOURCE[:1], found.ids[:1], num_free_tokens=1, jit_compile=False)
    np.testing.assert_allclose(scores.log_probabilities, found.scores[:1], atol=1e-4)
    np.testing.assert_allclose(scores.token_log_probabilities, log_p[:1], atol=1e-4)
    with pytest.raises(ValueError, match=r"num_free_tokens >= 0\. Received: -1"):
        model.score(SOURCE, found.ids, num_free_tokens=-1)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [XLAEngine(), TFGraphEngine()], ids=["xla", "graph"])
def test_an_export_takes_it_as_a_tensor(model, engine):
    """One traced function, whose sizes are unknown, serves any forced token."""

    @tf.function(autograph=False)
    def find(source, token):
        prefix = Prefix(tf.reshape(token, [1]), is_free=True)
        search = Search(Beam(2, "average"), max_length=L, target_prefix=prefix)
        found = run_search(model, source, search, engine)
        return found.ids[:, 0], found.scores[:, 0]

    compiled = find.get_concrete_function(
        tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([], tf.int32)
    )
    for token in (5, 8):
        ids, scores = compiled(tf.constant(SOURCE, tf.int32), tf.constant(token))
        expected, expected_scores = model.generate(
            SOURCE,
            Beam(2, "average"),
            max_length=L,
            target_prefix=Prefix([token], is_free=True),
            jit_compile=False,
        )
        assert (expected[:, 0] == token).all()
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_allclose(scores, expected_scores, atol=1e-4)


def test_the_traceable_search_refuses_a_shortlist_beside_it(model):
    config = model.config
    sizes = (config.source_vocabulary_size, config.target_vocabulary_size)
    lexicon = Lexicon.estimate(
        [([5, 2], [6, 2])], source_vocabulary_size=sizes[0], target_vocabulary_size=sizes[1]
    )
    source = tf.constant(SOURCE, tf.int32)
    ids, _ = decode(model, source, max_length=2, target_prefix=[6])
    assert (array(ids)[:, 0] == 6).all()
    with pytest.raises(ValueError, match="Received: both"):
        decode(model, source, max_length=2, target_prefix=[6], shortlist=Shortlist(lexicon, 5))


def test_rows_of_another_batch_are_named(model):
    for prefix in ([[5]], Prefix([[5]] * 4), [[[5]]]):
        with pytest.raises(ValueError, match=r"Expected shape \(3, length\) or \(length,\)"):
            model.generate(SOURCE, target_prefix=prefix)
