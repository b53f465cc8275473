"""Checks that several strategies make of their numbers."""

from __future__ import annotations

from typing import Any


def check_num_return(num_return: int, num_beams: int) -> None:
    """Raise if more hypotheses are to be returned than there are."""
    require_positive("There is nothing to return.", num_return=num_return)
    if num_return > num_beams:
        raise ValueError(
            "More hypotheses are asked for than are kept. Expected num_return <= num_beams. "
            f"Received: num_return={num_return}, num_beams={num_beams}"
        )


def require_positive(what: str, **values: Any) -> None:
    """Raise unless every value is an int of at least 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{what} Expected an int {name} >= 1. Received: {value!r}")
