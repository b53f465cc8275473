"""Several seeds of one measurement: their mean, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from claims.page import number


def spread(values: Sequence[float]) -> str:
    """The mean of the seeds, and the smallest and largest of them: `1.20 (1.10 to 1.31)`."""
    if min(values) == max(values):
        return number(values[0])
    return f"{number(np.mean(values))} ({number(min(values))} to {number(max(values))})"


def apart(lower: Sequence[float], upper: Sequence[float]) -> bool:
    """Whether every seed of the one lies below every seed of the other."""
    return max(lower) < min(upper)
