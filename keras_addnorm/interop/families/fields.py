"""The fields of a config file and those of `Seq2SeqConfig`, read in both directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.models import Seq2SeqConfig

Settings = Mapping[str, Any]


def number_in(settings: Settings, name: str, default: float) -> Any:
    """Return a number of a file of settings, or its default; a `ValueError` if it is none."""
    value = settings.get(name)
    if value is None:
        return default
    if not is_number(value):
        raise ArgumentError(
            f"The setting '{name}' is no number.", f"one such as {default}", value=value
        )
    return value


# They say how a model is trained, and are not known to every family's files.
_ONLY_IN_TRAINING = frozenset(
    {
        *("dropout", "attention_dropout", "activation_dropout", "drop_path"),
        *("kernel_initializer", "bias_initializer", "gradient_checkpointing"),
    }
)


@dataclasses.dataclass(frozen=True)
class SameAs:
    """The default of a field that is another one's value, a whole number.

    Attributes:
        name: The other field.
    """

    name: str


_PASSED_OVER = (
    " Those that are not known and change no number can be passed over: with --ignore {0} of "
    "keras-addnorm import, or ignored=('{0}',) of load_pretrained."
)
# What the value of a field has to be, by the type of its default.
_KINDS: Mapping[type, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (bool,)),
    int: ("a whole number", (int,)),
    SameAs: ("a whole number", (int,)),
    float: ("a number", (int, float)),
}


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a family's config file.

    Attributes:
        name: Its name there.
        default: Its value where a file leaves it out, or says null.
        ours: The fields of `Seq2SeqConfig` that it says; `"positions.offset"` for one within a
            dict. None for a field that has to have one of some values.
        values: What each value there is with us; `None` if it is the same.
        is_written: Whether new files have it, too.
    """

    name: str
    default: Any
    ours: tuple[str, ...] = ()
    values: Mapping[Any, Any] | None = None
    is_written: bool = True

    def read(self, value: Any) -> Any:
        """Return our value for one of a file; raise a `ValueError` if there is none."""
        if self.values is None:
            # A text or a dict is checked by whoever reads it.
            expected, kinds = _KINDS.get(type(self.default), ("", ()))
            if kinds and type(value) not in kinds:
                raise ValueError(f"{self.name} = {value!r:.60}; expected {expected}")
            return value
        if not isinstance(value, str | int | float | None) or value not in self.values:
            expected = " or ".join(map(repr, self.values))
            raise ValueError(f"{self.name} = {value!r:.60}; expected {expected}")
        return self.values[value]

    def write(self, value: Any) -> Any:
        """Return the value for a file for one of ours; raise a `ValueError` if there is none."""
        if self.values is None:
            return value
        for theirs, known in self.values.items():
            if known == value:
                return theirs
        expected = " or ".join(map(repr, self.values.values()))
        raise ValueError(f"{' and '.join(self.ours)} = {value!r}; expected {expected}")


def copied(name: str, default: Any, *ours: str) -> Field:
    """Return a field whose value is the same here and there."""
    return Field(name, default, ours)


def fixed(name: str, *values: Any, is_written: bool = True) -> Field:
    """Return a field that has to have one of some values, the first of which is its default."""
    return Field(name, values[0], (), dict.fromkeys(values), is_written)


@dataclasses.dataclass(frozen=True)
class ConfigFile:
    """What a family's config file says.

    Attributes:
        family: The name of the family, for messages.
        fields: The fields that change what a model computes.
        constants: Our fields that are the same for all models of the family.
        ignored: Fields that change nothing here: those of trainings and of searches, notes.
    """

    family: str
    fields: tuple[Field, ...]
    constants: Mapping[str, Any]
    ignored: frozenset[str] = frozenset()

    def read(self, settings: Settings, ignored: Collection[str] = ()) -> Seq2SeqConfig:
        """Return our config for the settings of a file.

        Args:
            settings: The fields of the file.
            ignored: The names of fields that change nothing, though they are not known.

        Returns:
            The config.

        Raises:
            ValueError: If there are fields that are not known, or have a value that our layers do
                not compute: all of them at once.
        """
        read = {field.name for field in self.fields}
        if wrong := sorted(read.intersection(ignored)):
            raise ValueError(
                f"A setting that says what a {self.family} model computes cannot be ignored. "
                f"Expected names that are not known here. Received: {', '.join(wrong)}"
            )
        known = read.union(self.ignored, ignored)
        unknown = [name for name in sorted(settings) if name not in known]
        problems = [f"{name:.60} = {settings[name]!r:.60}; not known" for name in unknown]
        ours: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for field in self.fields:
            theirs = self._value(field, settings)
            try:
                value = field.read(theirs)
            except ValueError as error:
                problems.append(str(error))
                continue
            for name in field.ours:
                if name in ours and ours[name] != value:
                    problems.append(
                        f"{field.name} = {theirs!r:.60}; expected the same as {origins[name]}"
                    )
                ours[name], origins[name] = value, f"{field.name} = {theirs!r:.60}"
        if problems:
            raise ValueError(
                f"This {self.family} model has settings that our layers do not compute, or that "
                f"are not known here: {'; '.join(problems):.2000}."
                + (_PASSED_OVER.format(unknown[0][:60]) if unknown else "")
            )
        return Seq2SeqConfig.from_dict(_nested({**self.constants, **ours}))

    def write(self, config: Seq2SeqConfig) -> dict[str, Any]:
        """Return the settings of a file that `read` makes this config of.

        Args:
            config: Our config.

        Returns:
            The settings.

        Raises:
            ValueError: If a model of this family cannot be so: all reasons at once.
        """
        settings, problems = {}, []
        values = config.to_dict()
        for field in self.fields:
            found = [_get(values, name) for name in field.ours]
            try:
                theirs = field.write(found[0]) if found else field.default
            except ValueError as error:
                problems.append(str(error))
                continue
            if field.is_written:
                settings[field.name] = theirs
        if not problems:
            read = self.read(settings).to_dict()
            problems = [
                f"{name} = {value!r}; expected {read[name]!r}"
                for name, value in values.items()
                if read[name] != value and name not in _ONLY_IN_TRAINING
            ]
        if problems:
            raise ValueError(
                f"A {self.family} model cannot be like this one: {'; '.join(problems)}. Use "
                "keras_addnorm.serving.export_saved_model, which exports every model."
            )
        return settings

    def _value(self, field: Field, settings: Settings) -> Any:
        value = settings.get(field.name)
        if value is not None:
            return value
        if isinstance(field.default, SameAs):
            (other,) = (each for each in self.fields if each.name == field.default.name)
            return self._value(other, settings)
        return field.default


def names(text: str) -> frozenset[str]:
    """Return a set of the words of a text, for lists of names."""
    return frozenset(text.split())


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{"a": {"b": 1}}` for `{"a.b": 1}`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        outer, _, inner = name.partition(".")
        if inner:
            found.setdefault(outer, {})[inner] = value
        else:
            found[name] = value
    return found


def _get(values: Mapping[str, Any], name: str) -> Any:
    """Return the value of `"a.b"`; `None` if there is none."""
    outer, _, inner = name.partition(".")
    value = values[outer]
    if not inner:
        return value
    return value.get(inner) if isinstance(value, Mapping) else None
