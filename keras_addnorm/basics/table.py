"""Tables of names: one kind of choice, by name, from a dict, or as an instance."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError, shown
from keras_addnorm.basics.suggestions import did_you_mean

T = TypeVar("T")

ENTRY = {"is_entry": True}
"""Metadata of a dataclass's field that holds another entry of the same table: configs have its
name, or its config."""


class UnknownNameError(ValueError):
    """A name is not in a table.

    Args:
        message: The message for those who call Python.
        kind: What the entries of the table are.
        received: What was given.
        names: The names there are.
    """

    def __init__(self, message: str, kind: str, received: Any, names: Iterable[str]) -> None:
        super().__init__(shown(message))
        self.kind = kind
        self.received = received
        self.names = tuple(names)


class Table(Generic[T]):
    """Names of classes that a choice is made among, with the fields that each of them has.

    Args:
        kind: What the entries are, for messages, such as `"length penalty"`.
        base: The class of all entries.
        classes: The entries by name. A class may have several names: the first one is written. A
            class, as the base, may be said as `"file:Class"`, with a file of the package `module`,
            and is imported when it is first used.
        fields: The names of the fields that a dict may give to a class; `None` for those of a
            dataclass, or the arguments of `__init__`.
        takes_instances: Whether `get` returns an instance of `base` as it is.
        module: Where `names`, `get` and `register` of this table are found, for messages.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Circle:
        ...     radius: float = 1.0
        >>> shapes = Table("shape", Circle, {"circle": Circle})
        >>> shapes.get({"name": "circle", "radius": 2.0})
        Circle(radius=2.0)
        >>> shapes.serialize(shapes.get("circle"))
        {'name': 'circle', 'radius': 1.0}
    """

    def __init__(
        self,
        kind: str,
        base: type[T] | str,
        classes: Mapping[str, type[T] | str],
        *,
        fields: Callable[[type[T]], Iterable[str]] | None = None,
        takes_instances: bool = True,
        module: str = "",
    ) -> None:
        self._kind = kind
        self._lazy_base = base
        self._classes = dict(classes)
        self._fields = fields or _own_fields
        self._takes_instances = takes_instances
        self._module = module

    @property
    def _base(self) -> type[T]:
        return self._imported(self._lazy_base)

    def _imported(self, entry: type[T] | str) -> type[T]:
        if not isinstance(entry, str):
            return entry
        file, _, name = entry.partition(":")
        found: type[T] = getattr(importlib.import_module(f"{self._module}.{file}"), name)
        return found

    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes that are imported when they are first used."""
        said = [entry for entry in self._classes.values() if isinstance(entry, str)]
        return tuple(dict.fromkeys(entry.partition(":")[2] for entry in said))

    def class_of_module(self, name: str) -> type[T]:
        """Return a class, or the base, for the `__getattr__` of the table's module.

        Args:
            name: The name of the class.

        Returns:
            The class.

        Raises:
            AttributeError: If the table says none of that name.
        """
        for entry in (self._lazy_base, *self._classes.values()):
            if isinstance(entry, str) and entry.endswith(f":{name}"):
                return self._imported(entry)
        raise AttributeError(f"module {self._module!r} has no attribute {name!r}")

    def load(self) -> None:
        """Import all classes."""
        for entry in self._classes.values():
            self._imported(entry)

    def names(self) -> tuple[str, ...]:
        """Return the names that `get` knows."""
        return tuple(self._classes)

    def register(self, name: str, entry: type[T]) -> None:
        """Add a class of your own, so that it is found by its name and can be saved.

        Args:
            name: The name it is found by.
            entry: The class. If the others are frozen dataclasses, it has to be one as well.

        Raises:
            TypeError: If it is no subclass of the table's base.
            ValueError: If the name is taken by another class, or the class is no frozen dataclass
                where it has to be one.
        """
        if not (isinstance(entry, type) and issubclass(entry, self._base)):
            raise ArgumentTypeError(
                f"A {self._kind} has to be a subclass of {self._base.__name__}.", value=entry
            )
        if name in self._classes and not self._is(self._classes[name], entry):
            raise ArgumentError(
                f"The {self._kind} name '{name}' is taken by "
                f"{self._imported(self._classes[name]).__name__}.",
                "a free name",
                received=f"{name!r} for {entry.__name__}",
            )
        first = next(iter(self._classes.values()), entry)
        if _is_frozen_dataclass(self._imported(first)) and not _is_frozen_dataclass(entry):
            raise ArgumentError(
                f"A {self._kind} has to be a frozen dataclass, because it is compared and saved.",
                remedy="Decorate it with @dataclasses.dataclass(frozen=True).",
                value=entry,
            )
        self._classes[name] = entry

    def get(self, identifier: str | dict[str, Any] | T) -> T:
        """Return an entry by name, from its config, or as it is.

        Args:
            identifier: A name, a dict with the name and the entry's own fields, or an instance.

        Returns:
            The entry.

        Raises:
            ValueError: If the name or a field is unknown, or a field is missing.
        """
        if self._takes_instances and isinstance(identifier, self._base):
            return identifier
        entry, fields = self.read(identifier)
        self._require_fields(entry, fields)
        inner = {name: self.get(fields[name]) for name in _inner_entries(entry) if name in fields}
        return entry(**fields | inner)

    def _require_fields(self, entry: type[T], fields: Mapping[str, Any]) -> None:
        """Raise a `ValueError` if an entry has fields without a default that are not given."""
        if not dataclasses.is_dataclass(entry):
            return
        missing = [
            field.name
            for field in dataclasses.fields(entry)
            if field.init
            and field.name not in fields
            and field.default is field.default_factory is dataclasses.MISSING
        ]
        if missing:
            name = self._first_name(entry)
            raise ArgumentError(
                f"The {self._kind} '{name}' is not complete.",
                f"a dict with a 'name' and {missing}, which have no default",
                value=dict(fields),
            )

    def read(self, identifier: Any) -> tuple[type[T], dict[str, Any]]:
        """Return the class and the fields that a name or a dict stands for.

        Args:
            identifier: A name, or a dict with the name and the entry's own fields.

        Returns:
            The class, and the fields of the dict.

        Raises:
            ValueError: If the name or a field is unknown.
        """
        fields = dict(identifier) if isinstance(identifier, dict) else {"name": identifier}
        name = fields.pop("name", None)
        if not isinstance(name, str) or name not in self._classes:
            instance = f", or a {self._base.__name__}" if self._takes_instances else ""
            raise UnknownNameError(
                f"There is no such {self._kind}. Expected one of {', '.join(self._classes)}, "
                f"{'' if instance else 'or '}a dict with a 'name' among them{instance}. "
                f"Received: {identifier!r}.{self._hint(name)}",
                self._kind,
                identifier if name is None else name,
                self._classes,
            )
        entry = self._imported(self._classes[name])
        known = list(self._fields(entry))
        if unknown := [field for field in fields if field not in known]:
            raise ArgumentError(
                f"The {self._kind} '{name}' has no such field.",
                f"fields among {known}",
                did_you_mean(unknown[:1], known),
                value=unknown,
            )
        return entry, fields

    def _hint(self, received: Any) -> str:
        """Return what to write instead of what was received, or `""`."""
        if isinstance(received, str | None):
            return did_you_mean([received], self._classes)
        kind = received if isinstance(received, type) else type(received)
        if self._takes_instances and kind is received and issubclass(kind, self._base):
            return f" That is a class: call it, {kind.__name__}()."
        # An entry itself, or a layer of Keras that does the same.
        return did_you_mean([kind.__name__], self._classes)

    def name_of(self, entry: T) -> str:
        """Return the name that an entry is saved under.

        Args:
            entry: An entry.

        Returns:
            The first name of its class.

        Raises:
            ValueError: If its class is not in the table.
        """
        if (name := self._first_name(type(entry))) is not None:
            return name
        raise ArgumentError(
            f"This {self._kind} cannot be saved, because its class is not in the table.",
            f"one of {', '.join(self._classes)}",
            f"Call {self._module}{'.' if self._module else ''}register('a_name', "
            f"{type(entry).__name__}) first, here and where it is loaded.",
            value=entry,
        )

    def _first_name(self, entry: type) -> str | None:
        return next((name for name, known in self._classes.items() if self._is(known, entry)), None)

    def _is(self, known: type[T] | str, entry: type) -> bool:
        """Tell whether a class is an entry, without importing others."""
        if isinstance(known, str):
            return f"{self._module}.{known}" == f"{entry.__module__}:{entry.__qualname__}"
        return known is entry

    def serialize(self, entry: T) -> dict[str, Any]:
        """Return the config that `get` makes an equal entry of.

        Args:
            entry: An entry whose class is in the table.

        Returns:
            A dict of plain values.

        Raises:
            ValueError: If the class is not in the table.
        """
        name = self.name_of(entry)
        values = {field: getattr(entry, field) for field in self._fields(type(entry))}
        inner = {field: self.serialize(values[field]) for field in _inner_entries(type(entry))}
        return {"name": name, **values, **inner}


def _own_fields(entry: type) -> list[str]:
    if dataclasses.is_dataclass(entry):
        return [field.name for field in dataclasses.fields(entry) if field.init]
    # Of the class itself, Python before 3.11.3 knows Keras' `__new__` alone, which takes anything.
    _, *parameters = inspect.signature(entry.__init__).parameters.values()  # type: ignore[misc]
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind not in variadic]


def _inner_entries(entry: type) -> list[str]:
    """Return the fields that hold another entry."""
    if not dataclasses.is_dataclass(entry):
        return []
    return [field.name for field in dataclasses.fields(entry) if field.metadata.get("is_entry")]


def _is_frozen_dataclass(entry: type) -> bool:
    parameters = getattr(entry, "__dataclass_params__", None)
    return parameters is not None and parameters.frozen
