"""A setting is one dataclass field: its default, its help text and its limits are written there.

The checks of a configuration, the TOML reader and the command line's flags follow from the fields.
`from_fields` makes an object of any dataclass from a dict that a Python program gives.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from keras_addnorm.basics.argument_checks import in_float32, is_bool, is_number, is_whole
from keras_addnorm.basics.errors import ArgumentError, SettingsError, UserError, unknown_name
from keras_addnorm.basics.suggestions import did_you_mean

_MOST_WRONG = 20


@dataclass(frozen=True)
class Limits:
    """The values that a setting may have.

    Attributes:
        minimum: The smallest value.
        maximum: The largest value.
        above: The value that it must exceed.
        below: The value that it must stay below.
        off: One more value, outside the range, which switches the setting off.
        choices: The names that it may have, in place of a range.
    """

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    off: float | None = None
    choices: tuple[str, ...] = ()

    def allow(self, value: Any) -> bool:
        """Tells whether a value is within the limits."""
        if self.choices:
            return value in self.choices
        if self.off is not None and value == self.off:
            return True
        return self.includes(value) and is_number(value, above=self.above, below=self.below)

    def includes(self, value: Any) -> bool:
        """Tells whether a number is in the range, whatever float32 makes of it."""
        # In this order, so that a value that is not a number is refused.
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        words = {"at least": self.minimum, "above": self.above, "at most": self.maximum}
        parts = [f"{word} {value}" for word, value in words.items() if value is not None]
        if self.below is not None:
            parts.append(f"below {self.below}")
        text = " and ".join(parts)
        return text if self.off is None else f"{self.off} or {text}"


def setting(
    default: Any,
    help: str | None = None,
    *,
    flag: str | None = None,
    alias: str | None = None,
    metavar: str | None = None,
    known_as: tuple[str, ...] = (),
    **limits: Any,
) -> Any:
    """Makes the dataclass field of a setting.

    Args:
        default: The default.
        help: The help text; a setting without one has no flag.
        flag: The name of its flag, where it differs from the field's.
        alias: An older name of its flag, which is still understood.
        metavar: What stands for its value in the help; by default it follows from the type.
        known_as: Names that other programs have for it, or for what a user takes it for, as flags
            without dashes: they are refused with its name.
        **limits: Fields of `Limits`.

    Returns:
        The field.
    """
    metadata = {
        "help": help,
        "flag": flag,
        "alias": alias,
        "metavar": metavar,
        "known_as": known_as,
        "limits": Limits(**limits) if limits else None,
    }
    return field(default=default, metadata=metadata)


def check_types(config: Any, table: str) -> None:
    """Checks the types of a configuration that was made by a call; an int becomes a float there."""
    kinds, wrong = typing.get_type_hints(type(config)), []
    prefix = f"{table}." if table else ""
    for item in dataclasses.fields(config):
        if "help" not in item.metadata:  # It is no `setting`, but a table of them.
            continue
        key, value = f"{prefix}{item.name}", getattr(config, item.name)
        try:
            object.__setattr__(config, item.name, convert(key, value, kinds[item.name]))
        except UserError as error:
            wrong.append(error)
    if wrong:
        raise SettingsError(wrong)


class Rule(NamedTuple):
    """A rule that a setting has to obey beside its limits."""

    name: str
    is_obeyed: bool
    expected: str


def check_settings(config: Any, table: str, rules: Iterable[Rule] = ()) -> None:
    """Checks all fields of a configuration against their limits, and then the rules.

    A `SettingsError` names all that are wrong; `table` is what a message says before the names.
    """
    prefix = f"{table}." if table else ""
    wrong: dict[str, UserError] = {}
    for item in dataclasses.fields(config):
        limits = item.metadata.get("limits")
        refusal = _refusal(f"{prefix}{item.name}", getattr(config, item.name), limits)
        if refusal:
            wrong[item.name] = refusal
    for name, is_obeyed, expected in rules:
        if not is_obeyed and name not in wrong:
            wrong[name] = _must_be(f"{prefix}{name}", expected, getattr(config, name))
    if wrong:
        raise SettingsError(wrong.values())


def _refusal(key: str, value: Any, limits: Limits | None) -> UserError | None:
    """What is wrong with a value; None if nothing is."""
    if isinstance(value, float) and not is_number(value):
        return _must_be(key, "a number, finite in float32", value)
    if (
        limits is None
        or value is None
        or all(map(limits.allow, value if isinstance(value, tuple) else [value]))
    ):
        return None
    if limits.choices:
        return unknown_name(f"`{key}`", value, limits.choices)
    each = "numbers of " if isinstance(value, tuple) else ""
    is_rounded = isinstance(value, float) and limits.includes(value)
    rounded = f", which is {in_float32(value):g} in float32" if is_rounded else ""
    return _must_be(key, f"{each}{limits}", value, rounded)


def _must_be(key: str, what: str, value: Any, more: str = "") -> ArgumentError:
    return ArgumentError(f"`{key}` must be {what}.", received=f"{_shown(value)}{more}")


def _shown(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value)


@dataclass(frozen=True)
class Setting:
    """One setting, as the command line sees it.

    Attributes:
        key: Its dotted name in the TOML file.
        flag: The name of its flag, without the dashes.
        kind: Its annotated type.
        help: Its help text.
        default: Its default.
        limits: The values that it may have; None for all of its type.
        alias: An older name of its flag.
        metavar: What stands for its value in the help; None if it follows from the type.
        known_as: Names that it has elsewhere, as flags without dashes.
    """

    key: str
    flag: str
    kind: Any
    help: str
    default: Any
    limits: Limits | None = None
    alias: str | None = None
    metavar: str | None = None
    known_as: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """The name of its table; empty for the outermost."""
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Its name in the table."""
        return self.key.rpartition(".")[2]

    def complaints(self, value: Any) -> list[UserError]:
        """Says what is wrong with a value of the right type: one error, or none."""
        refusal = _refusal(self.key, value, self.limits)
        return [] if refusal is None else [refusal]


def list_settings(config_class: type, prefix: str = "") -> Iterator[Setting]:
    """Lists the settings, fields with a help text, of a configuration class and of its tables.

    Those of its method `more_settings`, if there is one, follow. `prefix` is the dotted key of its
    table, with the final dot.
    """
    kinds = typing.get_type_hints(config_class)
    for item in dataclasses.fields(config_class):
        kind, metadata = kinds[item.name], item.metadata
        if dataclasses.is_dataclass(kind):
            yield from list_settings(typing.cast(type, kind), f"{prefix}{item.name}.")
        elif metadata.get("help"):
            yield Setting(
                f"{prefix}{item.name}",
                (metadata.get("flag") or item.name).replace("_", "-"),
                kind,
                metadata["help"],
                item.default,
                metadata.get("limits"),
                metadata.get("alias"),
                metadata.get("metavar"),
                metadata.get("known_as", ()),
            )
    if hasattr(config_class, "more_settings"):
        yield from config_class.more_settings()


def from_table(config_class: Any, settings: object, prefix: str = "") -> Any:
    """Makes a configuration of the class from a table; refuses all that it does not know, at once.

    A class that has a method `from_table` is asked. `prefix` is the dotted key of the table, with
    the final dot.
    """
    if not isinstance(settings, Mapping):
        raise _must_be(prefix.rstrip("."), "a table", settings)
    if hasattr(config_class, "from_table"):
        return config_class.from_table(settings)
    kinds = typing.get_type_hints(config_class)
    values: dict[str, Any] = {}
    wrong: list[UserError] = []
    for name, value in settings.items():
        key = f"{prefix}{name}"
        try:
            if name not in kinds:
                meant = (
                    f"{prefix}{item.name}"
                    for item in dataclasses.fields(config_class)
                    if name.replace("_", "-") in item.metadata.get("known_as", ())
                )
                raise unknown_name("setting", key, (f"{prefix}{known}" for known in kinds), meant)
            kind = kinds[name]
            is_table = dataclasses.is_dataclass(kind)
            values[name] = (
                from_table(kind, value, f"{key}.") if is_table else convert(key, value, kind)
            )
        except SettingsError as error:
            wrong += error.errors
        except UserError as error:
            wrong.append(error)
        if len(wrong) >= _MOST_WRONG:  # Of a file that is none of settings, nobody reads more.
            break
    if wrong:
        raise SettingsError(wrong)
    return config_class(**values)


def convert(key: str, value: Any, kind: Any) -> Any:
    """Checks one value, as TOML or a flag gives it, against the annotated type of its setting.

    Returns it, an int made a float and a list a tuple where the setting asks for that.
    """
    if isinstance(kind, types.UnionType):
        return None if value is None else convert(key, value, typing.get_args(kind)[0])
    if typing.get_origin(kind) is tuple:
        if isinstance(value, list | tuple):
            return tuple(convert(key, item, typing.get_args(kind)[0]) for item in value)
    elif (kind in (int, float) and is_whole(value)) or (kind is bool and is_bool(value)):
        return kind(value)  # Of NumPy's, Python's.
    elif isinstance(value, kind) and not isinstance(value, bool):
        return value
    name = _WORDS.get(kind, "")
    if typing.get_origin(kind) is tuple:
        name = f"a list of {'whole numbers' if typing.get_args(kind)[0] is int else 'texts'}"
    raise _must_be(key, name, value)


_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


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
