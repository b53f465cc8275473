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
    def has_surplus(self) -> bool:
        """Whether the row has more columns than the others."""
        return False


class SurplusRow(RawPair):
    """A row with more columns than the others; which of them are the texts cannot be known."""

    __slots__ = ()

    @classmethod
    def at(cls, line: int) -> SurplusRow:
        """The row on a line: both texts are empty."""
        return cls("", "", line)

    @property
    def has_surplus(self) -> bool:
        """Yes."""
        return True
