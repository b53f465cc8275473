"""Pairs in rows with named fields: objects of JSON, tables of Arrow, rows of Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keras_addnorm.data.readers.columns import Columns, named_columns


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
    found = named_columns(names, source, target, chosen)
    if found is None and len(names) == 2 and not any(chosen):
        note = (
            f"{label} does not say which column is which: {names[0]!r} is taken for {source!r}, "
            f"{names[1]!r} for {target!r}."
        )
        return Columns(names[0], names[1], note=note)
    if found is None:
        asked = " and ".join(repr(name) for name in (chosen if any(chosen) else (source, target)))
        raise ValueError(
            f"{label} has no columns for {asked}. It has {', '.join(map(repr, names)) or 'none'}. "
            "Name the two columns."
        )
    return Columns(*found)


def text_at(row: Mapping[str, Any], name: str, label: str) -> str:
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
    is_flat = name in row or not dot
    value = row.get(name) if is_flat else (row.get(outer) or {}).get(inner)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(
            f"{label}: expected a text in {name!r}; received {type(value).__name__} "
            f"{str(value)[:60]!r}."
        )
    return value
