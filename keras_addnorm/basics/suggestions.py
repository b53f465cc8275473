"""Suggestions for names that are nearly right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def did_you_mean(unknown: Iterable[Any], known: Iterable[str]) -> str:
    """Return `" Did you mean 'scheme'?"` for names that are nearly known, or `""`."""
    known = list(known)
    names = [name for name in unknown if isinstance(name, str)]
    near = [match for name in names for match in difflib.get_close_matches(name, known, n=1)]
    return f" Did you mean {' and '.join(map(repr, near))}?" if near else ""
