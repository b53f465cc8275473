"""Suggestions for names that are nearly right, or right in other libraries."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, NoReturn

_LONGEST_NAME = 100  # of what anybody meant to be a name
# Names are compared letter by letter; a file can have any number of them.
_MOST_UNKNOWN, _MOST_KNOWN = 3, 2000


def did_you_mean(unknown: Iterable[Any], known: Iterable[str]) -> str:
    """Return `" Did you mean 'scheme'?"` for names that are nearly known, or `""`."""
    known = list(known)
    names = [name for name in unknown if isinstance(name, str)][:_MOST_UNKNOWN]
    near = [match for name in names for match in near_names(name, known)[:1]]
    return f" Did you mean {' and '.join(map(repr, near))}?" if near else ""


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that are like a name, the most similar first.

    Upper case, hyphens, underscores and spaces make no difference, and a final "norm" is as good as
    "ln": `"PreLN"`, `"pre-ln"` and `"PreNorm"` are like `"pre_ln"`.
    """
    known = [other for other in known if len(other) <= _LONGEST_NAME][:_MOST_KNOWN]
    if len(name) > _LONGEST_NAME:
        return []
    if same := [other for other in known if _abbreviated(other) == _abbreviated(name)]:
        return same[:3]
    plain = {_plain(other): other for other in reversed(known)}
    return [plain[near] for near in difflib.get_close_matches(_plain(name), plain)]


def _plain(name: str) -> str:
    return re.sub(r"[-_\s]", "", name).casefold()


def _abbreviated(name: str) -> str:
    return re.sub("norm(ali[sz]ation)?$", "ln", _plain(name))


class Elsewhere:
    """A name that a class has in other libraries; whoever reads it is told what to write here.

    To Python the class has no such attribute: `hasattr` says no.

    Args:
        instead: A sentence that says what to write.
    """

    def __init__(self, instead: str) -> None:
        self._instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        what = "cannot be called" if self._name == "__call__" else f"has no {self._name!r}"
        raise AttributeError(f"{owner.__name__} {what}. {self._instead}")
