"""Two texts as a reader gives them."""

from __future__ import annotations

from typing import NamedTuple


class RawPair(NamedTuple):
    """Two texts as they stand in a file, not checked yet.

    Attributes:
        source: One text: bytes of any kind, or a string that may hold surrogates.
        target: The other.
        line: The line that they stand on, from 1; the row in a file without lines.
    """

    source: str | bytes
    target: str | bytes
    line: int

    @property
    def fault(self) -> str:
        """Why it cannot be used, as `LineReport` names it; empty where the texts decide."""
        return ""


class SurplusRow(RawPair):
    """A row with more columns than the others; which of them are the texts cannot be known."""

    __slots__ = ()

    @classmethod
    def at(cls, line: int) -> SurplusRow:
        """The row on a line: both texts are empty."""
        return cls("", "", line)

    @property
    def fault(self) -> str:
        """The count of such rows."""
        return "surplus"


class LongRow(SurplusRow):
    """A line, a row or a unit that is too long to be read as one."""

    __slots__ = ()

    @property
    def fault(self) -> str:
        """The count of texts that are too long."""
        return "too_long"
