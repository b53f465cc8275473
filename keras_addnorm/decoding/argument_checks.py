"""Checks of arguments that several strategies share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from keras_addnorm.basics.argument_checks import is_whole

T = TypeVar("T")


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


def require_type(what: str, value: T, *types: type) -> T:
    """Return a value, or raise a `ValueError` if it is of none of some types.

    Args:
        what: What the argument is, as the beginning of a sentence: `"A shortlist"`.
        value: What was passed.
        *types: The types.

    Returns:
        The value.

    Raises:
        ValueError: If it is of none of them.
    """
    if not isinstance(value, types):
        names = " or ".join(each.__name__ for each in types)
        raise ValueError(f"{what} is of another type. Expected a {names}. Received: {value!r:.80}")
    return value


def listed(what: str, values: Any) -> tuple[Any, ...]:
    """Return several values as a tuple, or raise a `ValueError` if they are no list.

    Args:
        what: What they are, as the subject of a sentence: `"Constraints"`.
        values: What was passed.

    Returns:
        The values.

    Raises:
        ValueError: If it is one value, or none.
    """
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise ValueError(
            f"{what} come in a list. Expected a list or a tuple, () for none. "
            f"Received: {values!r:.80}. Put a single one into a list: [...]."
        )
    return tuple(values)


def require_layer(layer: Any) -> None:
    """Raise unless a decoder layer is named by an int.

    Args:
        layer: Its index, -1 for the last.

    Raises:
        ValueError: If it is something else.
    """
    if not is_whole(layer):
        raise ValueError(
            "A decoder layer is named by its index. Expected an int layer, -1 for the last. "
            f"Received: {layer!r}"
        )
