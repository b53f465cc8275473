"""Expressions for splits, such as `train[:10%]+validation`: names, parts, and what is left."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keras_addnorm.data.file_names import VALIDATION_NAMES


def resolve_split(split: str, splits: Sequence[str], label: str) -> str:
    """Checks the names in an expression and replaces aliases such as `val`.

    Args:
        split: The expression.
        splits: The names that there are.
        label: What has them, for messages.

    Returns:
        The expression with names that there are.

    Raises:
        ValueError: If there is no such split.
    """
    return "+".join(_resolve_part(part.strip(), splits, label) for part in split.split("+"))


def names_in(split: str) -> tuple[str, ...]:
    """The names of an expression, each once."""
    return tuple(dict.fromkeys(part.strip().partition("[")[0] for part in split.split("+")))


def listed(names: Iterable[str]) -> str:
    """Names in quotation marks, for messages."""
    return ", ".join(repr(name) for name in names)


def _resolve_part(part: str, splits: Sequence[str], label: str) -> str:
    name, bracket, slice_ = part.partition("[")
    resolved = name if name in splits else _alias(name, splits)
    if resolved not in splits:
        raise ValueError(
            f"{label} has no split {name!r}. It has {listed(splits)}; a part of one "
            f"is written like '{splits[0]}[:10%]'."
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


def intervals(split: str, sizes: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """The pairs that an expression stands for.

    Args:
        split: The expression, whose names there are.
        sizes: The number of pairs of each split.

    Returns:
        Name, first pair and the one after the last, of each part.

    Raises:
        ValueError: If the expression is wrong.
    """
    from tensorflow_datasets.core import splits as tfds_splits

    known = {
        name: tfds_splits.SplitInfo(
            name=name,
            shard_lengths=[size],
            num_bytes=0,
            filename_template=None,
        )
        for name, size in sizes.items()
    }
    try:
        return parts_in_order(split, known)
    except (ValueError, AssertionError) as error:
        raise ValueError(
            f"{split!r} is no split: {error}. Splits are {listed(sizes)}; a part of one is written "
            "like 'train[:10%]' or 'train[100:200]'."
        ) from error


def parts_in_order(split: str, known: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """The parts of an expression, none of which ends before it begins.

    Args:
        split: The expression.
        known: The splits as TensorFlow Datasets describes them.

    Returns:
        Name, first pair and the one after the last, of each part.

    Raises:
        AssertionError: If the expression is wrong.
        ValueError: If the expression is wrong.
    """
    from tensorflow_datasets.core import splits as tfds_splits

    found = []
    for part in tfds_splits.ReadInstruction.from_spec(split.replace(" ", "")).to_absolute(known):
        end = known[part.splitname].num_examples if part.to is None else part.to
        start = part.from_ or 0
        if start > end:
            raise ValueError(
                f"a part of {part.splitname!r} begins at pair {start:,} and ends at {end:,}"
            )
        found.append((part.splitname, start, end))
    return found
