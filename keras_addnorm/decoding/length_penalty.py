"""How hypotheses of different length are compared."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any


def gnmt_penalty(length: int | Tensor, alpha: float) -> Tensor:
    """Return `((5 + n) / 6)^alpha`, by which a sum of log-probabilities is divided.

    Args:
        length: Number of tokens n, end token included.
        alpha: 0 for no penalty; larger values favour longer outputs.

    Returns:
        The penalty, float32.

    Reference:
        Wu et al., "Google's Neural Machine Translation System", 2016, equation 14.
    """
    return ((5.0 + ops.cast(length, "float32")) / 6.0) ** alpha
