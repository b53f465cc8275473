import numpy as np
import pytest
from search_reference import (
    exhaustive,
    log_p_of,
    padded,
    penalty,
    random_table,
    search,
    step_on,
    table_of,
)

from keras_addnorm.decoding import Beam, Greedy
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.decoding.engine import XLAEngine
from keras_addnorm.decoding.strategy import log_probabilities
from keras_addnorm.decoding.tensor_ops import write_column

V, L = 5, 5
USUAL = SpecialIds(pad_id=0, start_id=1, end_id=2)
# Padding and start outside the vocabulary: four words and an end, 1,365 sequences.
OUTSIDE = SpecialIds(pad_id=5, start_id=6, end_id=2)
END, A, B = 2, 3, 4


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("ids", [USUAL, OUTSIDE], ids=["usual", "outside"])
def test_a_wide_beam_finds_the_best_of_all_sequences(ids, alpha):
    table = random_table(3, V, L, seed=1)
    found, scores = search(Beam(V**4, alpha), table, L, ids)
    for row, sequence, score in zip(table, found, scores, strict=True):
        best, best_score = exhaustive(row, L, ids, alpha)
        assert sequence.tolist() == padded(best, L, ids)
        assert score == pytest.approx(best_score, abs=1e-5)


@pytest.mark.fast_cases(6)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.5])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_of_one_is_greedy_search(seed, alpha):
    table = random_table(7, V, L, seed=seed)
    greedy, greedy_scores = search(Greedy(alpha), table, L, USUAL)
    beam, beam_scores = search(Beam(1, alpha, early_stopping=True), table, L, USUAL)
    np.testing.assert_array_equal(beam, greedy)
    np.testing.assert_allclose(beam_scores, greedy_scores, rtol=1e-6)
    # A penalty may give more to an output that is longer: then it looks on behind the first end.
    beam, beam_scores = search(Beam(1, alpha), table, L, USUAL)
    assert (beam_scores >= greedy_scores - 1e-6).all()
    if alpha == 0:
        np.testing.assert_array_equal(beam, greedy)


@pytest.mark.parametrize("alpha", [0.0, 0.8])
@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_score_is_that_of_the_sequence(num_beams, alpha):
    strategy = Greedy(alpha) if num_beams == 1 else Beam(num_beams, alpha)
    table = random_table(9, V, L, seed=2)
    found, scores = search(strategy, table, L, USUAL)
    lengths = set()
    for row, sequence, score in zip(table, found, scores, strict=True):
        own = [t for t in sequence.tolist() if t != USUAL.pad_id]
        assert sequence.tolist() == padded(own, L, USUAL)
        assert END not in own[:-1]
        assert len(own) == L or own[-1] == END
        lengths.add(len(own))
        expected = log_p_of(row, own) / penalty(len(own), alpha)
        assert score == pytest.approx(expected, abs=1e-5)
    assert len(lengths) > 1


def test_greedy_by_hand():
    table = table_of(
        {(): {A: 0.6, B: 0.3, END: 0.1}, (A,): {A: 0.2, B: 0.7, END: 0.1}, (A, B): {END: 1.0}}, V, L
    )
    found, scores = search(Greedy(), table, L, USUAL)
    assert found.tolist() == [[A, B, END, 0, 0]]
    assert scores[0] == pytest.approx(np.log(0.6 * 0.7), abs=1e-5)


TRAP = {
    (): {A: 0.6, B: 0.4},
    (A,): {A: 0.4, B: 0.35, END: 0.25},
    (B,): {END: 0.9, A: 0.1},
    (A, A): {END: 1.0},
}


def test_a_beam_escapes_where_greedy_search_is_trapped():
    table = table_of(TRAP, V, 3)
    assert search(Greedy(), table, 3, USUAL)[0].tolist() == [[A, A, END]]
    found, scores = search(Beam(2), table, 3, USUAL)
    assert found.tolist() == [[B, END, 0]]
    assert scores[0] == pytest.approx(np.log(0.4 * 0.9), abs=1e-5)


# With two hypotheses: END (0.5) finishes first, then A END (0.18) and B END (0.16).
ENDS = {
    (): {END: 0.5, A: 0.3, B: 0.2},
    (A,): {END: 0.6, A: 0.2, B: 0.2},
    (B,): {END: 0.8, A: 0.1, B: 0.1},
}


@pytest.mark.parametrize(
    ("alpha", "sequence", "score"),
    [
        (0.0, [END, 0, 0], np.log(0.5)),
        (5.0, [END, 0, 0], np.log(0.5)),
        # (7/6)^6 = 2.5216: log 0.18 / 2.5216 = -0.6800 passes log 0.5 = -0.6931.
        (6.0, [A, END, 0], -0.680037),
    ],
)
def test_the_length_penalty_turns_the_winner(alpha, sequence, score):
    found, scores = search(Beam(2, alpha), table_of(ENDS, V, 3), 3, USUAL)
    assert found.tolist() == [sequence]
    assert scores[0] == pytest.approx(score, abs=1e-5)


def test_a_finished_hypothesis_is_frozen_while_others_go_on():
    """By hand: END alone has log 0.5; three more steps must neither add to it nor divide it."""
    going_on = {(A,) * n: {A: 0.9, END: 0.05, B: 0.05} for n in range(1, L)}
    probabilities = {(): {END: 0.5, A: 0.4, B: 0.1}, **going_on, (B,): {B: 1.0}, (B, B): {B: 1.0}}
    probabilities |= {(B,) * n: {B: 1.0} for n in range(1, L)}
    found, scores = search(Beam(3), table_of(probabilities, V, L), L, USUAL)
    assert found.tolist() == [[END, 0, 0, 0, 0]]
    assert scores[0] == pytest.approx(np.log(0.5), abs=1e-6)


@pytest.mark.parametrize("strategy", [Greedy(1.0), Beam(2, 1.0)], ids=str)
def test_a_finished_sentence_is_frozen_while_others_go_on(strategy):
    short = table_of({(): {END: 0.98, A: 0.01, B: 0.01}, (A,): {END: 1.0}, (B,): {END: 1.0}}, V, L)
    endless = table_of({(A,) * n: {A: 0.9, B: 0.1} for n in range(L)}, V, L)
    found, scores = search(strategy, np.concatenate([short, endless]), L, USUAL)
    assert found.tolist() == [[END, 0, 0, 0, 0], [A] * L]
    expected = [np.log(0.98), L * np.log(0.9) / penalty(L, 1.0)]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("strategy", "num_steps"),
    [
        (Greedy(), 1),
        (Beam(1), 1),
        # Of three hypotheses that end, the first one is better than the others can become.
        (Beam(3), 1),
        (Beam(3, num_return=2), 2),
        (Beam(3, num_return=3), 3),
        # What a longer one loses is divided by a hundred times as much, for all that is known.
        (Beam(3, 10.0), 3),
        (Beam(3, 10.0, early_stopping=False), 3),
    ],
    ids=str,
)
def test_the_search_stops_when_every_sentence_is_done(strategy, num_steps):
    steps = []
    # Three hypotheses end: at once, after one letter, after two. None goes on.
    table = table_of({(): {END: 0.8, A: 0.2}, (A,): {END: 0.8, A: 0.2}, (A, A): {END: 1.0}}, V, L)
    step = step_on(table)

    def counted(tokens, index, cache):
        steps.append(int(index))
        return step(tokens, index, cache)

    found, _ = search(strategy, table, L, USUAL, step=counted)
    if strategy.num_return == 1:
        found = found[:, None]
    assert found[0].tolist()[0] in ([END, 0, 0, 0, 0], [A, A, END, 0, 0])
    assert steps == list(range(num_steps))


@pytest.mark.parametrize("strategy", [Greedy(), Beam(2), Beam(4)], ids=str)
def test_ties_go_to_the_better_beam_and_the_smaller_id(strategy):
    ids = SpecialIds(pad_id=0, start_id=1, end_id=4)
    table = np.full((1, (5**3 - 1) // 4, V), np.log(1 / V))
    for _ in range(3):
        found, scores = search(strategy, table, 3, ids)
        # Three words cost as much as each other; a beam of four also sees the end, after one.
        expected = [[4, 0, 0]] if strategy == Beam(4) else [[2, 2, 2]]
        assert found.tolist() == expected
        length = 1 if strategy == Beam(4) else 3
        assert scores[0] == pytest.approx(length * np.log(1 / V), abs=1e-5)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3, 0.6)], ids=str)
def test_a_batch_is_decoded_as_its_sentences_one_by_one(strategy):
    table = random_table(6, V, L, seed=3)
    found, scores = search(strategy, table, L, USUAL)
    for i in range(6):
        alone, score = search(strategy, table[i : i + 1], L, USUAL)
        np.testing.assert_array_equal(found[i], alone[0])
        assert scores[i] == score[0]


@pytest.mark.parametrize("strategy", [Greedy(0.6), Beam(1, 0.6), Beam(3, 0.6)], ids=str)
def test_empty_sentences_give_padding_and_zero(strategy):
    table = random_table(3, V, L, seed=3)
    expected, expected_scores = search(strategy, table, L, USUAL)
    found, scores = search(strategy, table, L, USUAL, is_empty=[True, False, True])
    np.testing.assert_array_equal(found[[0, 2]], 0)
    np.testing.assert_array_equal(scores[[0, 2]], 0.0)
    np.testing.assert_array_equal(found[1], expected[1])
    assert scores[1] == expected_scores[1]


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=str)
def test_padding_and_start_are_never_generated(strategy):
    table = random_table(5, V, L, seed=4)
    table[:, :, :2] += 20.0
    found, scores = search(strategy, table, L, USUAL)
    for sequence in found.tolist():
        own = sequence[: sequence.index(END) + 1] if END in sequence else sequence
        assert set(own) <= {END, A, B}
        assert sequence == padded(own, L, USUAL)
    # Their probability is not shared out among the others: the score stays the model's own.
    assert (scores < -10).all()


@pytest.mark.parametrize("num_beams", [2, 3, 7, 40])
def test_more_beams_than_continuations(num_beams):
    """At the first step there are fewer candidates than beams; no ghost may win."""
    table = random_table(4, V, 2, seed=5)
    found, scores = search(Beam(num_beams), table, 2, USUAL)
    assert (scores > -100).all()
    if num_beams >= 3:
        for row, sequence in zip(table, found, strict=True):
            assert sequence.tolist() == padded(exhaustive(row, 2, USUAL, 0.0)[0], 2, USUAL)


def test_log_probabilities_are_float32_and_those_of_the_whole_vocabulary():
    logits = np.array([[1.0, 2.0, 3.0, 4.0]], "float16")
    log_p, is_bad = map(np.asarray, log_probabilities(logits, USUAL, XLAEngine()))
    assert is_bad.tolist() == [False]
    assert log_p.dtype == "float32"
    total = np.log(np.exp([1.0, 2.0, 3.0, 4.0]).sum())
    np.testing.assert_allclose(log_p, [[-1e9, -1e9, 3 - total, 4 - total]], rtol=1e-6)


def test_write_column():
    rows = np.zeros((2, 3), "int32")
    np.testing.assert_array_equal(write_column(rows, 1, np.array([7, 8])), [[0, 7, 0], [0, 8, 0]])


@pytest.mark.parametrize("num_beams", [0, -2])
def test_a_beam_needs_hypotheses(num_beams):
    with pytest.raises(ValueError, match=f"Expected an int num_beams >= 1. Received: {num_beams}"):
        Beam(num_beams)
