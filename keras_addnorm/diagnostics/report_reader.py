"""A report from plain values, which may be anything: they are read by the types of its fields."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from keras_addnorm.basics.argument_checks import LARGEST_WHOLE, is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.diagnostics.report_data import AttentionMap, AttentionStatistics, ReportData

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# What a head is scored by; a table has a column for each.
_MOST_PATTERNS = 100


def report_fields(values: Any) -> dict[str, Any]:
    """Return the arguments of a report that `Report.to_dict` described.

    Args:
        values: What a file holds.

    Returns:
        The fields of `ReportData`.

    Raises:
        ValueError: If a value is missing or of another kind; its place is named.
    """
    if not isinstance(values, Mapping):
        raise _refusal("The report", "an object with its fields", values)
    own = {name: value for name, value in values.items() if name != "format"}
    fields = _fields(ReportData, own, "")
    for number, item in enumerate(fields["sublayers"]):
        if item.attention is not None:
            _require_heads(item.attention, f"sublayers[{number}].attention")
    for number, found in enumerate(fields.get("attention_maps", ())):
        _require_map(found, f"attention_maps[{number}]")
    attention = [item.attention for item in fields["sublayers"] if item.attention is not None]
    patterns = {name for each in attention for name in each.patterns or ()}
    if len(patterns) > _MOST_PATTERNS:
        raise ArgumentError(
            "The heads of a report are scored by a few patterns.",
            f"at most {_MOST_PATTERNS}",
            received=f"{len(patterns):,}",
        )
    return fields


@functools.cache
def _types(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _fields(kind: type, values: Any, place: str) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise _refusal(f"`{place}`", f"an object with the fields of {kind.__name__}", values)
    before = f"{place}." if place else ""
    known = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := [name for name in values if name not in known]:
        raise ArgumentError(
            "The report has a field that is not known.",
            f"fields among {', '.join(before + name for name in known)}",
            "Inspect the model again with this version.",
            received=f"{before}{unknown[0]!r:.80}",
        )
    found = {}
    for name, field in known.items():
        if name in values:
            found[name] = _read(_types(kind)[name], values[name], f"{before}{name}")
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ArgumentError(
                f"The report has no `{before}{name}`.", remedy="Inspect the model again."
            )
    return found


def _read(kind: Any, value: Any, place: str) -> Any:
    if isinstance(kind, types.UnionType):
        return None if value is None else _read(typing.get_args(kind)[0], value, place)
    if dataclasses.is_dataclass(kind):
        return typing.cast(type, kind)(**_fields(typing.cast(type, kind), value, place))
    if typing.get_origin(kind) is tuple:
        return _read_list(kind, value, place)
    if typing.get_origin(kind) is dict:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise _refusal(f"`{place}`", "an object", value)
        of_each = typing.get_args(kind)[1]
        return {name: _read(of_each, each, place) for name, each in value.items()}
    if kind is float and isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    is_right = {
        str: isinstance(value, str),
        int: is_whole(value),
        float: isinstance(value, float) or is_whole(value, -LARGEST_WHOLE, LARGEST_WHOLE),
    }
    if not is_right[kind]:
        words = {str: "a text", int: "a whole number", float: "a number"}
        raise _refusal(f"`{place}`", words[kind], value)
    return kind(value)


def _read_list(kind: Any, value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _refusal(f"`{place}`", "a list", value)
    of_each = typing.get_args(kind)[0]
    if dataclasses.is_dataclass(of_each):
        return tuple(_read(of_each, each, f"{place}[{n}]") for n, each in enumerate(value))
    found = tuple(_read(of_each, each, place) for each in value)
    if typing.get_origin(of_each) is tuple and len(set(map(len, found))) > 1:
        raise _refusal(f"`{place}`", "rows of one length", sorted(set(map(len, found)))[:4])
    return found


def _require_heads(found: AttentionStatistics, place: str) -> None:
    heads = len(found.entropy)
    sizes = {
        "entropy_share": (len(found.entropy_share),),
        "similarity": _shape(found.similarity),
        **{f"patterns.{name}": (len(each),) for name, each in (found.patterns or {}).items()},
    }
    for name, size in sizes.items():
        if heads and size != (heads,) * len(size):
            raise _refusal(f"`{place}.{name}`", f"{heads} numbers, one a head", size)


def _require_map(found: AttentionMap, place: str) -> None:
    rows, columns = expected = len(found.queries), len(found.keys)
    if not found.weights or _shape(found.weights[0]) != expected or 0 in expected:
        raise _refusal(
            f"`{place}.weights`",
            f"{rows} rows of {columns} numbers for each head, as queries and keys, and none of 0",
            _shape(found.weights),
        )


def _shape(rows: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(rows, tuple):
        shape.append(len(rows))
        rows = rows[0] if rows else None
    return tuple(shape)


def _refusal(what: str, expected: str, value: Any) -> ArgumentError:
    return ArgumentError(
        f"{what} is not what a report has.", expected, "Inspect the model again.", value=value
    )
