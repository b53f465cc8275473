"""Checks of arguments: numbers of the right kind and size, and names of the right type."""

from __future__ import annotations

import math
import numbers
from typing import Any


def is_whole(value: Any, least: int | None = None, most: int | None = None) -> bool:
    """Return whether a value is an int, Python's or NumPy's but no bool, within the limits."""
    if not _is_a(numbers.Integral, value):
        return False
    return (least is None or value >= least) and (most is None or value <= most)


def is_number(
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> bool:
    """Return whether a value is a finite number, Python's or NumPy's but no bool, within limits."""
    # An int that no float can hold is a number, too.
    if not _is_a(numbers.Real, value) or not (is_whole(value) or math.isfinite(value)):
        return False
    return (
        (above is None or value > above)
        and (least is None or value >= least)
        and (below is None or value < below)
        and (most is None or value <= most)
    )


def _is_a(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def require_whole(what: str, *, least: int = 1, **values: Any) -> None:
    """Raise unless every value is an int of at least `least`.

    Args:
        what: What the numbers are for, as a sentence.
        least: The smallest number.
        **values: The numbers by the names of the arguments.

    Raises:
        ValueError: If one is something else.
    """
    for name, value in values.items():
        if not is_whole(value, least):
            raise ValueError(f"{what} Expected an int {name} >= {least}. Received: {value!r}")


def require_text(what: str, **values: Any) -> None:
    """Raise unless every value is a string that is not empty.

    Args:
        what: What the strings are for, as a sentence.
        **values: The strings by the names of the arguments.

    Raises:
        ValueError: If one is something else.
    """
    for name, value in values.items():
        if not isinstance(value, str) or not value:
            raise ValueError(f"{what} Expected a str {name}. Received: {value!r:.80}")


def require_share(**values: Any) -> None:
    """Raise a `ValueError` unless every value is a share that may be dropped: 0 or more, below 1.

    Args:
        **values: The shares by the names of the arguments.
    """
    for name, value in values.items():
        if not is_number(value, least=0, below=1):
            raise ValueError(f"`{name}` is a share. Expected 0 <= share < 1. Received: {value!r}")


def require_gain(**values: Any) -> None:
    """Raise a `ValueError` unless every value is a factor: a finite number of 0 or more.

    Args:
        **values: The factors by the names of the arguments.
    """
    for name, value in values.items():
        if not is_number(value, least=0):
            raise ValueError(
                f"`{name}` is a factor. Expected a finite number >= 0. Received: {value!r}"
            )


def require_epsilon(epsilon: Any) -> None:
    """Raise a `ValueError` unless a norm's epsilon is a finite number of 0 or more.

    Args:
        epsilon: The number.
    """
    if not is_number(epsilon, least=0):
        raise ValueError(
            "`epsilon` keeps norms from dividing by 0. Expected a finite number >= 0. "
            f"Received: {epsilon!r}"
        )


def require_size(**values: Any) -> None:
    """Raise a `ValueError` unless every value is a size: an int of at least 1.

    Args:
        **values: The sizes by the names of the arguments.
    """
    for name, value in values.items():
        if not is_whole(value, 1):
            raise ValueError(f"`{name}` has to be a positive integer. Received: {value!r}")


def require_finite(what: str, **values: Any) -> None:
    """Raise a `ValueError` unless every value is a finite number.

    Args:
        what: What the numbers are for, as a sentence.
        **values: The numbers by the names of the arguments.
    """
    for name, value in values.items():
        if not is_number(value):
            raise ValueError(f"{what} Expected a finite number {name}. Received: {value!r}")
