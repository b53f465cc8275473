import numpy as np
import pytest
from search_reference import penalty

from keras_addnorm.decoding import AveragePenalty, GNMTPenalty, NoPenalty, length_penalties

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
        (float("nan"), "has to be a finite number. Received: alpha=nan"),
        ({"name": "average", "alpha": float("inf")}, "Received: alpha=inf"),
    ],
)
def test_what_is_no_penalty(identifier, message):
    with pytest.raises(ValueError, match=message):
        length_penalties.get(identifier)
