"""Checks of arguments: numbers of the right kind and size, names of the right type, paths."""

from __future__ import annotations

import errno
import math
import numbers
import os
import stat
import struct
import sys
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import ArgumentError

LARGEST_WHOLE = 2**53
"""Of a number from a file: floats hold it, and larger ones may have one hash all together."""
_SMALLEST_NORMAL = 2.0**-126
# What opening would wait for, or reading never end at.
_ENDLESS = {
    "a pipe": stat.S_ISFIFO,
    "a device": stat.S_ISCHR,
    "a disk": stat.S_ISBLK,
    "a socket": stat.S_ISSOCK,
}


def is_whole(value: Any, least: int | None = None, most: int | None = None) -> bool:
    """Return whether a value is an int, Python's or NumPy's but no bool, within the limits."""
    if not _is_a(numbers.Integral, value):
        return False
    return (least is None or value >= least) and (most is None or value <= most)


def is_number(
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> bool:
    """Return whether a value is a number, Python's or NumPy's but no bool, within limits.

    It is computed with in float32, where 1e39 is infinite, 1e-46 is 0 and 0.99999999 is 1: it has
    to be finite there, and must not reach the limits that it is to stay above or below.
    """
    if not _is_a(numbers.Real, value):
        return False
    held = in_float32(value)
    return (
        math.isfinite(held)
        and (above is None or (value > above and held > in_float32(above)))
        and (least is None or value >= least)
        and (below is None or (value < below and held < in_float32(below)))
        and (most is None or value <= most)
    )


def in_float32(value: Any) -> float:
    """Return what float32 holds of a number: infinity if it is too large, 0 if it is tiny."""
    try:
        held: float = struct.unpack("f", struct.pack("f", float(value)))[0]
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    # XLA takes smaller ones for 0.
    return 0.0 if abs(held) < _SMALLEST_NORMAL else held


def _is_a(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def require_int(what: str, *, least: int = 1, most: int | None = None, **values: Any) -> None:
    """Raise unless every value is an int of at least `least`, and at most `most`."""
    limit = "" if most is None else f" and <= {most}"
    for name, value in values.items():
        if not is_whole(value, least, most):
            expected = f"an int `{name}` >= {least}{limit if is_whole(value, least) else ''}"
            raise ArgumentError(what, expected, **{name: value})


def is_bool(value: Any) -> bool:
    """Return whether a value is True or False, Python's or NumPy's."""
    numpy = sys.modules.get("numpy")  # Where it is not imported, no value is of its kind.
    return isinstance(value, bool) or (numpy is not None and isinstance(value, numpy.bool_))


def require_bool(**values: Any) -> None:
    """Raise a `ValueError` unless every value is a bool: the text "no" would count as True."""
    for name, value in values.items():
        if not is_bool(value):
            raise ArgumentError(f"`{name}` is a switch.", "True or False", **{name: value})


def require_share(**values: Any) -> None:
    """Raise a `ValueError` unless every value is a share to be dropped: 0 or more, below 1."""
    for name, value in values.items():
        if not is_number(value, least=0, below=1):
            raise ArgumentError(
                f"`{name}` is a share.", "0 <= share < 1 in float32", **{name: value}
            )


def require_gain(**values: Any) -> None:
    """Raise a `ValueError` unless every value is a factor: a finite number of 0 or more."""
    for name, value in values.items():
        if not is_number(value, least=0):
            raise ArgumentError(
                f"`{name}` is a factor.", "a number >= 0, finite in float32", **{name: value}
            )


def require_epsilon(epsilon: Any) -> None:
    """Raise a `ValueError` unless a norm's epsilon is a finite number of 0 or more.

    One that is 0 in float32 and not here would keep nothing from being divided by 0.
    """
    if not is_number(epsilon, least=0) or (epsilon != 0 and in_float32(epsilon) == 0):
        raise ArgumentError(
            "`epsilon` keeps norms from dividing by 0.",
            "a number >= 0, finite in float32, and there no 0 unless it is 0",
            epsilon=epsilon,
        )


def require_function(**values: Any) -> None:
    """Raise a `ValueError` unless every value can be called."""
    for name, value in values.items():
        if not callable(value):
            raise ArgumentError(f"`{name}` is called.", "a function", **{name: value})


def require_size(**values: Any) -> None:
    """Raise a `ValueError` unless every value is a size: an int of at least 1."""
    for name, value in values.items():
        if not is_whole(value, 1):
            raise ArgumentError(f"`{name}` has to be a positive integer.", **{name: value})


def require_finite(what: str, **values: Any) -> None:
    """Raise a `ValueError` unless every value is a finite number; `what` says what they are for."""
    for name, value in values.items():
        if not is_number(value):
            raise ArgumentError(what, f"a number `{name}`, finite in float32", **{name: value})


def to_path(path: str | os.PathLike[str]) -> Path:
    """Return a path that a user has given.

    Args:
        path: The path of a file or a folder.

    Returns:
        The path.

    Raises:
        ValueError: If it is empty, or has a zero character, or one that no name can have.
            `Path("")` is the current folder, which nobody has named.

    Example:
        >>> from keras_addnorm.basics.argument_checks import to_path
        >>> to_path("runs/mine").name
        'mine'
    """
    text = os.fsdecode(path)
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ArgumentError(
            "A path has a character that no name has.", "text in UTF-8", value=text
        ) from error
    if text == "" or "\0" in text:
        raise ArgumentError(
            f"A path {'has a zero character' if text else 'is empty'}.",
            "the name of a file or a folder, '.' for the current one",
            value=text,
        )
    return Path(path)


def to_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that is to be read.

    Args:
        path: The path. Whether there is a file, opening it says.

    Returns:
        The path.

    Raises:
        ValueError: If it is empty, longer than any file's, or that of a pipe, a device or a socket,
            which have no end.

    Example:
        >>> from keras_addnorm.basics.argument_checks import to_file
        >>> try:
        ...     to_file("/dev/zero")
        ... except ValueError as error:
        ...     print(str(error).partition(". ")[0])
        '/dev/zero' is a device, which is read once, or never to its end
    """
    path = to_path(path)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:
            raise ArgumentError("A path has names that are too long.", value=str(path)) from error
        return path  # Opening it says why.
    for name, is_of_kind in _ENDLESS.items():
        if is_of_kind(mode):
            raise ArgumentError(
                f"'{path}' is {name}, which is read once, or never to its end.",
                "a file",
                "Write what it gives into a file first.",
            )
    return path


def has_file(path: Path) -> bool:
    """Return whether there is a file; a pipe, a device or a socket in its place is refused."""
    return to_file(path).is_file()
