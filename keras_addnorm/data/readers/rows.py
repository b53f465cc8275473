"""Pairs in rows with named fields: objects of JSON, tables of Arrow, rows of Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.printing import listed
from keras_addnorm.data.readers.columns import (
    Columns,
    named_columns,
    require_few_columns,
    says_another,
)


def flat_names(row: Mapping[str, Any]) -> list[str]:
    """The names of a row's fields; those of a structure inside with a dot, `translation.en`."""
    names: list[str] = []
    for name, value in row.items():
        if isinstance(value, Mapping):
            names += [f"{name}.{inner}" for inner in value]
        else:
            names.append(str(name))
    return names


def columns_of_names(
    names: Sequence[str], source: str, target: str, chosen: tuple[str, str], label: str
) -> Columns:
    """Finds the fields of two languages.

    Args:
        names: The names of the fields.
        source: One language.
        target: The other.
        chosen: The names that the user gives; empty for those that are to be found.
        label: Where the rows come from, for messages.

    Returns:
        The columns, by name.

    Raises:
        ValueError: If they cannot be found; the message lists the names.
    """
    require_few_columns(len(names), label)
    one, other = named_columns(names, source, target, chosen)
    if one is not None and other is not None:
        return Columns(one, other)
    if len(names) == 2 and not any(chosen):
        guess = _in_order(names, one, other)
        wanted = source, target
        if not any(
            name not in (one, other) and says_another(name, language, side)
            for side, (name, language) in enumerate(zip(guess, wanted, strict=True))
        ):
            says = (
                f"names {one or other!r}, but not {wanted[one is not None]!r}"
                if one or other
                else "does not say which column is which"
            )
            note = (
                f"{label} {says}: {guess[0]!r} is taken for {source!r}, {guess[1]!r} for "
                f"{target!r}."
            )
            return Columns(*guess, note=note)
    asked = " and ".join(repr(name) for name in (chosen if any(chosen) else (source, target)))
    raise ValueError(
        f"{label} has no columns for {asked:.200}. It has {listed(names) or 'none'}. "
        "Name the two columns."
    )


def _in_order(names: Sequence[str], one: str | None, other: str | None) -> tuple[str, str]:
    """The two names in the order source, target: one that is found is where it is found."""
    is_turned = one == names[1] or other == names[0]
    return (names[1], names[0]) if is_turned else (names[0], names[1])


def text_at(row: Mapping[str, Any], name: str, label: str) -> str | bytes:
    """The text of a field, which is empty where there is none.

    Args:
        row: The row.
        name: The name of the field, as `flat_names` gives it.
        label: The place, for messages.

    Returns:
        The text.

    Raises:
        ValueError: If it is no text.
    """
    outer, dot, inner = name.rpartition(".")
    value: Any = row.get(name)
    if dot and name not in row:
        value = row.get(outer)
        if not isinstance(value, Mapping | None):
            raise ArgumentError(
                f"{label}: expected an object with {inner!r} in {outer!r}.",
                received=f"{type(value).__name__} {str(value)[:60]!r}",
            )
        value = (value or {}).get(inner)
    if value is None:
        return ""
    if not isinstance(value, str | bytes):
        raise ArgumentError(
            f"{label}: expected a text in {name!r}.",
            received=f"{type(value).__name__} {str(value)[:60]!r}",
        )
    return value
