"""The page of all settings of a run, from the dataclasses that define them."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from typing import Any

from keras_addnorm.basics.fields import Setting, list_settings
from keras_addnorm.runs.distillation.settings import DistillationConfig
from keras_addnorm.runs.settings import RunConfig

PATH = "reference/settings.md"

_HEAD = """\
# Settings of a run

Every setting of `keras-addnorm train`, and in the table `distillation` those that only
`keras-addnorm distill` has. A setting is a key of the TOML file that `--config` names
and of `config.toml` in a run directory, and a flag of the command. `--set model.positions=rotary`
takes any other field of [`Seq2SeqConfig`][keras_addnorm.models.Seq2SeqConfig].
"""
_WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text"}


def page() -> str:
    """Return the page's Markdown."""
    tables: dict[str, list[Setting]] = {}
    for setting in (*list_settings(RunConfig), *DistillationConfig.settings()):
        tables.setdefault(setting.table, []).append(setting)
    return "\n".join([_HEAD, *(_table(name, some) for name, some in tables.items())])


def _table(name: str, settings: Iterable[Setting]) -> str:
    """Return one table of the TOML file."""
    lines = [
        f"## `[{name}]`" if name else "## Outside of a table",
        "",
        "| key | flag | default | values | meaning |",
        "|---|---|---|---|---|",
    ]
    for one in settings:
        cells = (f"`{one.name}`", f"`--{one.flag}`", _default(one), _values(one), one.help)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join((*lines, ""))


def _default(setting: Setting) -> str:
    """Return a default as TOML has it."""
    value = setting.default
    if value is None or value == ():
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    shown = list(value) if isinstance(value, tuple) else value
    return f'`"{shown}"`' if isinstance(shown, str) else f"`{shown}`"


def _values(setting: Setting) -> str:
    """Return the type, or the limits that imply it."""
    if setting.limits is not None and setting.limits.choices:
        return ", ".join(f"`{choice}`" for choice in setting.limits.choices)
    word = _word(setting.kind)
    return f"{word}, {setting.limits}" if setting.limits is not None else word


def _word(kind: Any) -> str:
    """Return the name of a type."""
    if isinstance(kind, types.UnionType):
        return _word(typing.get_args(kind)[0])
    if typing.get_origin(kind) is tuple:
        return f"list of {_word(typing.get_args(kind)[0])}s"
    return _WORDS[kind]
