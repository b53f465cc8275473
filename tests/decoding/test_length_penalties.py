import keras
import numpy as np
import pytest
from models_reference import SOURCE, tiny_model
from search_reference import penalty

from keras_addnorm.decoding import (
    AveragePenalty,
    Beam,
    GNMTPenalty,
    Greedy,
    LengthPenalty,
    NoPenalty,
    decode,
    length_penalties,
)
from keras_addnorm.decoding.tensor_ops import IMPOSSIBLE

LENGTHS = np.array([1, 2, 7, 13])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_three_formulas(alpha):
    np.testing.assert_allclose(
        GNMTPenalty(alpha).divisor(LENGTHS), penalty(LENGTHS, alpha), rtol=1e-6
    )
    np.testing.assert_allclose(AveragePenalty(alpha).divisor(LENGTHS), LENGTHS**alpha, rtol=1e-6)
    np.testing.assert_array_equal(NoPenalty().divisor(LENGTHS), np.ones(4, "float32"))
    assert float(GNMTPenalty(alpha).divisor(1)) == 1.0


def test_a_sequence_of_no_tokens_is_divided_by_one():
    assert float(AveragePenalty(0.7).divisor(0)) == 1.0


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        (0, NoPenalty()),
        (0.0, NoPenalty()),
        ("none", NoPenalty()),
        (1, GNMTPenalty(1.0)),
        (-0.5, GNMTPenalty(-0.5)),
        ("gnmt", GNMTPenalty(0.6)),
        ("average", AveragePenalty(1.0)),
        ({"name": "average", "alpha": 0.3}, AveragePenalty(0.3)),
        (AveragePenalty(2.0), AveragePenalty(2.0)),
    ],
)
def test_the_table(identifier, expected):
    found = length_penalties.get(identifier)
    assert found == expected
    assert length_penalties.get(length_penalties.serialize(found)) == expected


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        ("gnmt2", "no such length penalty. Expected one of none, gnmt, average.*'gnmt2'"),
        (None, "no such length penalty.*None"),
        ({"alpha": 1.0}, "no such length penalty"),
        ({"name": "gnmt", "beta": 1}, r"'gnmt' has no such field.*\['alpha'\].*\['beta'\]"),
        (float("nan"), "has to be a number, finite in float32. Received: alpha=nan"),
        ({"name": "average", "alpha": float("inf")}, "Received: alpha=inf"),
        (1e39, "Received: alpha=1e\\+39"),
    ],
)
def test_what_is_no_penalty(identifier, message):
    with pytest.raises(ValueError, match=message):
        length_penalties.get(identifier)


class Steep(LengthPenalty):
    """A penalty of one's own."""

    def divisor(self, length):
        return keras.ops.cast(length, "float32") ** 40


class Hollow(LengthPenalty):
    """Divides by next to nothing at one length between others."""

    def divisor(self, length):
        return keras.ops.where(keras.ops.equal(length, 17), 1e-30, 1.0)


@pytest.mark.parametrize(
    ("penalty", "words"),
    [
        (Hollow(), "for 17 tokens"),
        (GNMTPenalty(500.0), "for 64 tokens. .*alpha=500.0.*1e[+]530 there"),
        (AveragePenalty(300.0), "alpha=300.0.*1e[+]542"),
        (GNMTPenalty(-500.0), "alpha=-500.0.*1e-530"),
        (AveragePenalty(-4.0), "between 3e-06 and 1e[+]30 .*alpha=-4.0.*1e-7"),
        (Steep(), "for 64 tokens"),
    ],
)
@pytest.mark.parametrize("strategy", [Greedy, lambda penalty: Beam(3, penalty)])
def test_scores_that_float32_cannot_tell_apart_are_refused(penalty, words, strategy):
    """They were all -0.0, or the outputs padding with the score minus infinity."""
    model = tiny_model(num_encoder_layers=1, num_decoder_layers=1)
    with pytest.raises(ValueError, match=words):
        model.generate(SOURCE, strategy(penalty), max_length=64)
    if not isinstance(penalty, Steep | Hollow):
        with pytest.raises(ValueError, match=words):
            decode(
                model,
                keras.ops.convert_to_tensor(SOURCE),
                strategy=strategy(penalty),
                max_length=64,
            )


@pytest.mark.parametrize("max_length", [1, 2, 64, 1000])
@pytest.mark.parametrize(
    "penalty", [NoPenalty(), GNMTPenalty(3.0), GNMTPenalty(-1.0), AveragePenalty(-1.0)]
)
def test_what_float32_can_tell_apart_is_not_refused(penalty, max_length):
    length_penalties.require_scores(penalty, max_length)
    # The worst sum that is still a translation, and the least that is not 0.
    sums = np.float32([-20.0 * max_length, -1e-7])
    scores = sums / np.float32(penalty.divisor(max_length))
    assert np.isfinite(scores).all() and (scores < 0).all() and (scores > IMPOSSIBLE / 2).all()
