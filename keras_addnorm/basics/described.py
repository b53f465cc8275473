"""Objects that are described by a dict of their fields."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.suggestions import did_you_mean

T = TypeVar("T")


def from_fields(cls: type[T], identifier: Any, subject: str) -> T | None:
    """Return an object as it is, or made of a dict of its fields; `None` stays.

    Args:
        cls: Its class, a dataclass.
        identifier: An instance, a dict of its fields, or `None`.
        subject: What the object describes, for messages: `"The attention"`.

    Returns:
        The object, or `None`.

    Raises:
        ValueError: If it is something else, or a field is unknown, missing or does not fit.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Window:
        ...     size: int
        >>> from_fields(Window, {"size": 3}, "The window")
        Window(size=3)
    """
    if identifier is None or isinstance(identifier, cls):
        return identifier
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if not isinstance(identifier, dict):
        raise ArgumentError(
            f"{subject} is described by a {cls.__name__}.",
            f"one, or a dict of its fields: {', '.join(fields)}",
            value=identifier,
        )
    if unknown := sorted(map(str, identifier.keys() - fields.keys())):
        raise ArgumentError(
            f"{subject} has no such field.",
            f"fields among {', '.join(fields)}",
            did_you_mean(unknown[:1], fields),
            received=", ".join(unknown),
        )
    absent = dataclasses.MISSING
    needed = [name for name, one in fields.items() if one.default is one.default_factory is absent]
    if missing := [name for name in needed if name not in identifier]:
        raise ArgumentError(
            f"{subject} is not complete.",
            f"a dict with {', '.join(needed)}. Missing: {', '.join(missing)}",
            value=identifier,
        )
    return cls(**identifier)
