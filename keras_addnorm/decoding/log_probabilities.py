"""Sums of log-probabilities: what is impossible, and where a logit was no number."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any

IMPOSSIBLE = -1e9
"""Log-probability of what cannot happen. Finite, since infinities breed NaN."""


def is_possible(scores: Tensor) -> Tensor:
    """Return where a sum or score belongs to something that can happen."""
    return scores > IMPOSSIBLE / 2


def first_bad_step(bad_step: Tensor, is_bad: Tensor, index: Tensor) -> Tensor:
    """Return the earlier of `bad_step` and, if any row `is_bad`, this one."""
    return ops.where(ops.any(is_bad), ops.minimum(bad_step, index), bad_step)
