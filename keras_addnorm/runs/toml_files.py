"""Settings as TOML: files, single assignments, and nested tables with dotted keys."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import ArgumentError, SettingsError, UserError
from keras_addnorm.basics.text import read_text

# How Python writes bytes of an argument or of a path that are no UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")

# The parser holds each beginning of a dotted key: 100 KB of one key take more than 8 GB.
_MOST_PARTS = 32
_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MOST_PARTS}}}""", re.ASCII
)


def _loads(text: str) -> dict[str, Any]:
    """Reads TOML; a `ValueError` says what is none, or has a key with very many parts."""
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {_MOST_PARTS} parts")
    return tomllib.loads(text)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Reads a TOML file into nested tables; a `UserError` names one that cannot be read."""
    try:
        return _loads(read_text(path))
    except FileNotFoundError:
        raise UserError(
            f"There is no configuration file {str(path)!r}. "
            "Give the path of a TOML file, or leave --config out and use flags."
        ) from None
    except IsADirectoryError:
        raise UserError(f"{str(path)!r} is a folder. Expected a TOML file.") from None
    # TOML without sense, text without sense, whole numbers of thousands of digits.
    except (ValueError, RecursionError) as error:
        raise UserError(f"{str(path)!r} is not a TOML file: {error}") from None


@contextlib.contextmanager
def naming_file(path: str | Path | None) -> Iterator[None]:
    """Names the file that settings were read from, if any, in errors about what they say."""
    try:
        yield
    except UserError as error:
        if path is None or str(path) in str(error):
            raise
        errors = error.errors if isinstance(error, SettingsError) else (error,)
        raise SettingsError(errors, str(path)) from error


def to_toml(settings: Mapping[str, Any], prefix: str = "") -> str:
    """Writes nested tables as TOML; leaves out what is None, as TOML has no word for it."""
    lines = [
        f"{key} = {_value(value)}"
        for key, value in settings.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{prefix}{key}]", to_toml(value, f"{prefix}{key}.").rstrip("\n")]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    # TOML has no DEL within a string.
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if not_text := _SURROGATE.search(text):
        raise UserError(
            f"A setting is written as text in UTF-8, and {value!r} is none: it has the byte "
            f"{ord(not_text[0]) & 0xFF:#x}. Rename the file or folder."
        )
    return text


def parse_assignment(text: str) -> tuple[str, Any]:
    """Reads `key=value` as `--set` takes it: the value is TOML, or else a plain string.

    Args:
        text: For instance `model.hidden_dim=64` or `model.scheme=deep_norm`.

    Returns:
        The dotted key and the value.

    Raises:
        UserError: If there is no equals sign.

    Example:
        >>> parse_assignment("model.hidden_dim=64")
        ('model.hidden_dim', 64)
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ArgumentError("--set takes key=value, such as `model.hidden_dim`=64.", value=text)
    return key.strip(), parse_value(value)


def parse_value(text: str) -> Any:
    """Reads a value as TOML, such as `64` or `{name = "deep_norm"}`, or else as a plain string."""
    try:
        return _loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text.strip()


def merge(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Applies changes by dotted key to nested tables, which are copied."""
    merged = {
        key: merge(value, {}) if isinstance(value, Mapping) else value
        for key, value in settings.items()
    }
    for dotted, value in changes.items():
        *tables, last = dotted.split(".")
        table = merged
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise UserError(f"{dotted!r}: {name!r} is a single value, not a table of settings.")
        table[last] = value
    return merged


def by_dotted_key(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of the outermost tables by dotted key; a value may be a table itself."""
    return dict(_pairs(settings))


def _pairs(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield key, value
