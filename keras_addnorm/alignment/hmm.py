"""The hidden Markov model of word alignment: a target token comes from a source token or none.

Shape letters: N sentences with as many source tokens each, T target length, S source length.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

P_NULL = 0.2
"""Probability that a target token comes from no source token (Och and Ney, 2003)."""
_UNIFORM = 0.2
"""Share of the jumps that go anywhere, so that none is impossible."""
_SMALLEST = 1e-12
"""Probability of a translation that the table lacks."""


@dataclass
class Jumps:
    """How likely a jump from one source position to another is, by its width alone.

    Attributes:
        counts: How often each width was seen.
    """

    counts: dict[int, float] = field(default_factory=dict)

    def matrix(self, length: int) -> np.ndarray:
        """Returns p(to | from) in a source of a length, `(S, S)`, rows of the sum 1."""
        widths = range(1 - length, length)
        by_width = np.array([self.counts.get(width, 0.0) for width in widths])
        if not by_width.any():
            return np.full((length, length), 1 / length)
        place = np.arange(length)
        seen = by_width[place[None, :] - place[:, None] + length - 1] + _SMALLEST
        return (1 - _UNIFORM) * seen / seen.sum(1, keepdims=True) + _UNIFORM / length

    def add(self, expected: np.ndarray) -> None:
        """Counts expected jumps, `(S, S)`."""
        length = len(expected)
        for width in range(1 - length, length):
            seen = self.counts.get(width, 0.0)
            self.counts[width] = seen + float(np.trace(expected, width))


@dataclass(frozen=True)
class Posteriors:
    """Where each target token comes from.

    Attributes:
        links: `(N, T, S)`: the probability of each source position.
        null: `(N, T)`: the probability of none.
        jumps: `(S, S)`: expected number of jumps from each position to each.
    """

    links: np.ndarray
    null: np.ndarray
    jumps: np.ndarray


def forward_backward(
    emission: np.ndarray, null_emission: np.ndarray, is_real: np.ndarray, matrix: np.ndarray
) -> Posteriors:
    """Computes where each target token comes from, given the whole sentence.

    With a the source position of target token t, p₀ that of none, and e the translation
    probabilities, the model is::

        p(a_1 = i) = (1 - p₀) / S,  p(a_t = i | a_{t-1} = j) = (1 - p₀) matrix[j, i]

    A token from no position remembers the position before it.

    Args:
        emission: `(N, T, S)`: e of each target token from each source token.
        null_emission: `(N, T)`: e of each target token from none.
        is_real: `(N, T)`: False at padding, which stands at the end.
        matrix: `(S, S)`: probabilities of the jumps.

    Returns:
        The posteriors, zeros at padding.

    Reference:
        Vogel et al., "HMM-Based Word Alignment in Statistical Translation", 1996; Och and Ney, "A
        Systematic Comparison of Various Statistical Alignment Models", 2003, for the empty word.
    """
    count, length, size = emission.shape
    # Padding is as likely from everywhere, so that it tells nothing of what is before it.
    emission = np.where(is_real[..., None], np.maximum(emission, _SMALLEST), 1.0)
    null_emission = np.where(is_real, np.maximum(null_emission, _SMALLEST), 1.0)
    before = np.zeros((length, count, size))  # Where the token before comes from, or remembers.
    links, null = np.zeros((2, length, count, size))
    scales = np.zeros((length, count, 1))
    for t in range(length):
        if t:
            before[t] = links[t - 1] + null[t - 1]
            reached = before[t] @ matrix
        else:
            before[t] = reached = np.full((count, size), 1 / size)
        links[t] = (1 - P_NULL) * reached * emission[:, t]
        null[t] = P_NULL * before[t] * null_emission[:, t, None]
        scales[t] = (links[t] + null[t]).sum(1, keepdims=True)
        links[t] /= scales[t]
        null[t] /= scales[t]
    later = np.ones((count, size))  # Of what comes after t, by where t comes from.
    jumps = np.zeros((size, size))
    for t in reversed(range(length)):
        links[t] *= later
        null[t] *= later
        here = emission[:, t] * later / scales[t]
        if t:
            seen = np.where(is_real[:, t, None], here, 0.0)
            jumps += (1 - P_NULL) * matrix * (before[t].T @ seen)
        later = (1 - P_NULL) * (here @ matrix.T) + P_NULL * (
            null_emission[:, t, None] * later / scales[t]
        )
    real = is_real[..., None]
    return Posteriors(
        np.where(real, links.transpose(1, 0, 2), 0.0),
        np.where(real, null.transpose(1, 0, 2), 0.0).sum(2),
        jumps,
    )
