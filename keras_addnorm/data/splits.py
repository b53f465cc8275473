"""Expressions for splits, such as `train[:10%]+validation`: names, parts, and what is left."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.printing import listed
from keras_addnorm.data.file_names import VALIDATION_NAMES

_PART = re.compile(
    r"(?P<name>[^\[\]+]+)"
    r"(\[\s*+(?P<start>-?[\d_.]++%?)?\s*+:\s*+(?P<end>-?[\d_.]++%?)?\s*+\])?"
)


class MissingSplitError(ArgumentError):
    """A split that is asked for is not there; `name` is its name.

    Args:
        problem: What is wrong, in a sentence.
        name: The name of the split.
        **parts: Other parts of an `ArgumentError`.
    """

    # An error is copied with its first argument alone.
    def __init__(self, problem: str = "", *, name: str = "", **parts: Any) -> None:
        super().__init__(problem, **parts)
        self.name = name


def resolve_split(split: str, splits: Sequence[str], label: str) -> str:
    """Checks the names in an expression and replaces aliases such as `val`."""
    if not isinstance(split, str):
        raise ArgumentError(expected="split as a string, or None", value=split)
    return "+".join(_resolve_part(part.strip(), splits, label) for part in split.split("+"))


def names_in(split: str) -> tuple[str, ...]:
    """The names of an expression, each once."""
    return tuple(dict.fromkeys(part.strip().partition("[")[0] for part in split.split("+")))


def _resolve_part(part: str, splits: Sequence[str], label: str) -> str:
    name, bracket, slice_ = part.partition("[")
    resolved = name if name in splits else _alias(name, splits)
    if resolved not in splits and re.search(r"[/\\]|\.[a-z]+$", name):
        raise ValueError(f"There is no file {name[:80]!r}, and {label} has no split of that name.")
    if resolved not in splits:
        raise MissingSplitError(
            f"{label} has no split {name[:80]!r}.",
            name=name,
            remedy=f"It has {listed(splits)}; a part of one is written like '{splits[0]}[:10%]'.",
        )
    return resolved + bracket + slice_


def _alias(name: str, splits: Sequence[str]) -> str:
    """The one split that a common name stands for; else the name itself."""
    patterns = {
        "test": (r"test.*", r"newstest.*|newsdiscusstest.*|tst\d*|devtest\d*"),
        "validation": (r"validation", r"newsdev.*|newsdiscussdev.*|dev\d*"),
    }
    name = "validation" if name in VALIDATION_NAMES else name
    for pattern in patterns.get(name, ()):
        found = [split for split in splits if re.fullmatch(pattern, split)]
        if len(found) == 1:
            return found[0]
        if found:
            break
    return name


def without(split: str, other: str, sizes: Mapping[str, int]) -> str:
    """The part of a split that another expression leaves.

    Args:
        split: The expression, whose names there are.
        other: The pairs that are taken away.
        sizes: The number of pairs of each split.

    Returns:
        An expression; empty if nothing is left.

    Raises:
        ValueError: If an expression is wrong.

    Example:
        >>> from keras_addnorm.data.splits import without
        >>> without("train", "train[:1%]+train[50:60]", {"train": 100})
        'train[1:50]+train[60:100]'
    """
    left = intervals(split, sizes)
    for name, start, end in intervals(other, sizes):
        left = [
            part
            for one in left
            for part in (_cut(one, start, end) if one[0] == name else [one])
            if part[1] < part[2]
        ]
    return "+".join(f"{name}[{start}:{end}]" for name, start, end in left)


def _cut(part: tuple[str, int, int], start: int, end: int) -> list[tuple[str, int, int]]:
    name, first, last = part
    return [(name, first, min(last, start)), (name, max(first, end), last)]


def intervals(split: str, sizes: Mapping[str, int], label: str = "") -> list[tuple[str, int, int]]:
    """The pairs that an expression stands for.

    Args:
        split: The expression, whose names there are.
        sizes: The number of pairs of each split; none is asked for if the expression is wrong.
        label: What has the splits, for messages.

    Returns:
        Name, first pair and the one after the last, of each part.

    Raises:
        ValueError: If the expression is wrong.
    """
    try:
        matches = [_part_of(part.strip()) for part in split.split("+")]
        return [_absolute(match, sizes[match["name"]]) for match in matches]
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{split[:80]!r} is no split{label and f' of {label}'}: {error}. Splits are "
            f"{listed(sizes)}; a part of one is written like 'train[:10%]' or 'train[100:200]'."
        ) from error


def _part_of(part: str) -> re.Match[str]:
    match = _PART.fullmatch(part)
    if match is None:
        raise ValueError(f"{part[:80]!r} is neither a name nor a name with [first:last] behind it")
    return match


def _absolute(part: re.Match[str], size: int) -> tuple[str, int, int]:
    """Name, first pair and the one after the last."""
    is_share = "%" in part[0]
    bounds = []
    for text, default in ((part["start"], 0), (part["end"], size)):
        bound = default
        if text:
            bound = round(float(text.strip("%")) * size / 100) if is_share else int(text)
        if abs(bound) > size:
            raise ValueError(f"{part['name']!r} has {size:,} pairs, and not {abs(bound):,}")
        bounds.append(bound + size if bound < 0 else bound)
    start, end = bounds
    if start > end:
        raise ValueError(f"a part of {part['name']!r} begins at pair {start:,} and ends at {end:,}")
    return part["name"], start, end
