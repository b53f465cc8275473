"""The one kind of table that choices are looked up in: by name, from a dict, or as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Table(Generic[T]):
    """Names of frozen dataclasses.

    Args:
        kind: What the entries are, for messages, such as "length penalty".
        base: The class of all entries.
        classes: The entries.
    """

    def __init__(self, kind: str, base: type[T], classes: Mapping[str, type[T]]) -> None:
        self._kind = kind
        self._base = base
        self._classes = dict(classes)

    def names(self) -> tuple[str, ...]:
        """Return the names that `get` knows."""
        return tuple(self._classes)

    def get(self, identifier: str | dict[str, Any] | T) -> T:
        """Return an entry by name, from its config, or as it is.

        Args:
            identifier: A name, a dict with the name and the entry's own fields, or an instance.

        Returns:
            The entry.

        Raises:
            ValueError: If the name or a field is unknown.
        """
        if isinstance(identifier, self._base):
            return identifier
        fields = dict(identifier) if isinstance(identifier, dict) else {"name": identifier}
        name = fields.pop("name", None)
        if not isinstance(name, str) or name not in self._classes:
            raise ValueError(
                f"There is no such {self._kind}. Expected one of {', '.join(self._classes)}, a "
                f"dict with a 'name' among them, or a {self._base.__name__}. "
                f"Received: {identifier!r}"
            )
        known = [f.name for f in dataclasses.fields(self._classes[name])]  # type: ignore[arg-type]
        if unknown := sorted(set(fields) - set(known)):
            raise ValueError(
                f"The {self._kind} '{name}' has no such field. Expected fields among {known}. "
                f"Received: {unknown}"
            )
        return self._classes[name](**fields)

    def serialize(self, entry: T) -> dict[str, Any]:
        """Return the config that `get` turns back into an equal entry.

        Args:
            entry: An entry whose class is in the table.

        Returns:
            A dict of plain values.

        Raises:
            ValueError: If the class is not in the table.
        """
        for name, known in self._classes.items():
            if type(entry) is known:
                fields = dataclasses.fields(known)  # type: ignore[arg-type]
                return {"name": name, **{f.name: getattr(entry, f.name) for f in fields}}
        raise ValueError(
            f"This {self._kind} cannot be written down, because its class is not in the table. "
            f"Expected one of {', '.join(self._classes)}. Received: {entry!r}"
        )
