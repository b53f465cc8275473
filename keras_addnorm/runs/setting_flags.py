"""Settings as flags of a command: what it offers, what was given, and the words of its messages."""

from __future__ import annotations

import argparse
import itertools
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import SettingsError, UserError
from keras_addnorm.basics.fields import Setting, convert
from keras_addnorm.basics.suggestions import did_you_mean
from keras_addnorm.runs.toml_files import parse_assignment

_TITLES = {
    "": "data",
    "distillation": "distillation",
    "tokenizer": "tokenizer",
    "model": "model",
    "training": "training",
    "evaluation": "search for translations",
}
# The tables that say how something is done; the others say of what: data, tokenizer, model.
_JOBS = {"training", "evaluation"}
# More names than this stand in the help text, not in place of the value.
_FEW_CHOICES = 7


def flags_of(settings: Iterable[Setting], own_table: str) -> dict[str, Setting]:
    """Names the flags of a command."""
    others = _JOBS - {own_table}
    return {f"{one.table}-{one.flag}" if one.table in others else one.flag: one for one in settings}


def add_flags(
    parser: argparse.ArgumentParser,
    settings: Iterable[Setting],
    own_table: str = "",
    titles: Mapping[str, str] = _TITLES,
) -> None:
    """Adds a flag for each setting, grouped by table; one that is not given stays out.

    The group of `own_table`, which the command is about, comes first; `titles` are the headings.
    """
    flags = flags_of(settings, own_table)
    parser.set_defaults(flags=flags)
    for table, group in itertools.groupby(flags.items(), lambda item: item[1].table):
        _add_group(parser.add_argument_group(titles.get(table, table)), group, flags)


def _add_group(group: Any, flags: Iterable[tuple[str, Setting]], taken: Mapping[str, Any]) -> None:
    for flag, one in flags:
        names = [flag] + [one.alias] * (one.alias is not None and one.alias not in taken)
        shape: dict[str, Any] = {
            "dest": one.key,
            "default": argparse.SUPPRESS,
            "help": _help(one).replace("%", "%%"),
        }
        if one.kind is bool:
            shape["action"] = argparse.BooleanOptionalAction
        else:
            shape |= _reader(one.kind, one)
        group.add_argument(*(f"--{name}" for name in names), **shape)


def _help(one: Setting) -> str:
    choices = one.limits.choices if one.limits else ()
    is_shown = choices and len(choices) <= _FEW_CHOICES
    limits = f"{one.limits}; " if one.limits and str(one.limits) and not is_shown else ""
    default = _shown(one.default)
    if one.table == "model" and one.default is None:
        default = "the preset's"
    return f"{one.help} ({limits}default: {default})"


def _shown(default: Any) -> str:
    if default in (None, (), ""):
        return "none"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _reader(kind: Any, one: Setting) -> dict[str, Any]:
    """How a flag's text becomes a value."""
    if isinstance(kind, types.UnionType):
        return _reader(typing.get_args(kind)[0], one)
    if typing.get_origin(kind) is tuple:
        return {"nargs": "+", **_reader(typing.get_args(kind)[0], one)}
    if kind is not str:
        read, metavar = {int: (whole_number, "N"), float: (number, "X")}[kind]
        return {"type": read, "metavar": one.metavar or metavar}
    choices = one.limits.choices if one.limits else ()
    if choices and len(choices) <= _FEW_CHOICES:
        return {"metavar": "{" + ",".join(choices) + "}"}
    return {"type": some_text, "metavar": one.metavar or ("NAME" if choices else "TEXT")}


def whole_number(text: str) -> int:
    """Reads a whole number; argparse says its name to people."""
    return int(text)


def number(text: str) -> float:
    """Reads a number; argparse says its name to people."""
    return float(text)


def some_text(text: str) -> str:
    """Reads a name that is not empty, as that of a variable which the shell does not have."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"expected a name or a path, received {text!r}")
    return text


def some_path(text: str) -> Path:
    """Reads a path, which is not empty: that would be the current folder."""
    return Path(some_text(text))


whole_number.__name__ = "whole number"


def given(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings that were given, by dotted key; `--set` wins over the flags.

    A `UserError` says that one has the wrong type, or that the command has none of that name.
    """
    settings: dict[str, Setting] = {one.key: one for one in options.flags.values()}
    assignments = dict(map(parse_assignment, getattr(options, "set", ())))
    if not getattr(options, "sets_anything", False):
        _require_known(assignments, settings)
    found, wrong = {}, []
    for key in filter(vars(options).__contains__, settings):
        found[key] = convert(key, getattr(options, key), settings[key].kind)
        # Others are checked with those of the file. In a file, a model may have a scheme by any
        # name that was registered.
        if key.startswith("model."):
            wrong += settings[key].complaints(found[key])
    if wrong:
        raise SettingsError(wrong)
    return found | assignments


def _require_known(assignments: Mapping[str, Any], settings: Mapping[str, Setting]) -> None:
    for key in assignments:
        if key not in settings:
            raise UserError(
                f"This command has no setting {key!r}.{did_you_mean([key], settings)} Expected one "
                f"of: {', '.join(settings)}."
            )


def flags_by_name(options: argparse.Namespace) -> dict[str, str]:
    """Returns the flags of a command by what they are in Python, for its messages.

    The key of a setting, such as `training.epochs`, is not among them where a file or `--set` gave
    it.
    """
    actions = options.parser._actions if "parser" in options else ()
    names = {
        action.dest: action.option_strings[-1].replace("--no-", "--")
        for action in actions
        if action.option_strings and "." not in action.dest
    }
    own = set(names)
    settings: dict[str, Setting] = getattr(options, "flags", {})
    for flag, one in settings.items():
        # Of two settings of one name, the command is about the one that has the plain flag.
        if one.name not in own or flag == one.flag:
            names[one.name] = f"--{flag}"
    given = {one.key: f"--{flag}" for flag, one in settings.items() if one.key in vars(options)}
    return names | given
