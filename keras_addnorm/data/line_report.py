"""Decides which pairs of lines can be used, and counts the others by reason."""

from __future__ import annotations

import dataclasses

from keras_addnorm.data.characters import is_blank


@dataclasses.dataclass(frozen=True)
class LineReport:
    """How many lines of a split became pairs, and why others were left out.

    Attributes:
        split: The name of the split.
        kept: The number of pairs that can be used.
        empty: Lines with nothing on one side or on both.
        invalid_utf8: Lines with bytes that are no UTF-8.
        too_long: Lines with more than `max_chars` characters on one side.
        surplus: Rows with more columns than the others.
        no_text: Lines with a zero character (NUL), which no text has.
        max_chars: The longest side that is kept, in characters.
        first_bad_lines: The numbers (from 1) of the first few lines that were left out; with the
            file, `"a.tsv:7"`, where a split has several.

    Example:
        >>> from keras_addnorm.data import LineReport
        >>> report = LineReport("train", kept=8, empty=2, max_chars=1000, first_bad_lines=(3, 7))
        >>> print(report)
        train: 8 of 10 pairs kept; left out: 2 empty (lines 3, 7)
        >>> report.total
        10
    """

    split: str
    kept: int = 0
    empty: int = 0
    invalid_utf8: int = 0
    too_long: int = 0
    max_chars: int = 1000
    first_bad_lines: tuple[int | str, ...] = ()
    surplus: int = 0
    no_text: int = 0

    @property
    def left_out(self) -> int:
        """The number of lines that were left out."""
        return self.empty + self.invalid_utf8 + self.too_long + self.surplus + self.no_text

    @property
    def total(self) -> int:
        """The number of lines that were read."""
        return self.kept + self.left_out

    def __str__(self) -> str:
        """The report in one readable line."""
        if not self.left_out:
            return f"{self.split}: all {self.total:,} pairs kept"
        reasons = (
            (self.empty, "empty"),
            (self.invalid_utf8, "not UTF-8"),
            (self.too_long, f"longer than {self.max_chars:,} characters"),
            (self.surplus, "with more columns than the others"),
            (self.no_text, "with a zero character, which no text has"),
        )
        said = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
        lines = ", ".join(map(str, self.first_bad_lines))
        more = ", ..." if self.left_out > len(self.first_bad_lines) else ""
        return (
            f"{self.split}: {self.kept:,} of {self.total:,} pairs kept; left out: {said} "
            f"(lines {lines}{more})"
        )


LEFT_OUT = ("empty", "invalid_utf8", "too_long", "surplus", "no_text")
"""The counts of a `LineReport` that say why lines were left out."""


class LineChecker:
    """Decides which pairs of lines of a split can be used, and counts them.

    Args:
        split: The name of the split, for the report.
        max_chars: The longest side to keep, in characters.
    """

    _SHOWN = 5

    def __init__(self, split: str, max_chars: int) -> None:
        self._split = split
        self._max_chars = max_chars
        self._counts = dict.fromkeys(("kept", *LEFT_OUT), 0)
        self._bad_lines: list[int | str] = []

    def check(
        self,
        source: bytes | str,
        target: bytes | str,
        place: int | str | None = None,
        fault: str = "",
    ) -> tuple[str, str] | None:
        """Decodes a pair of lines.

        Args:
            source: The line on the source side.
            target: The line on the target side.
            place: Where the pair stands; by default the number of pairs that were checked.
            fault: What is wrong with it whatever its texts are, as the report counts it.

        Returns:
            Both texts without surrounding white space, or `None` if the pair cannot be used.
        """
        verdict, pair = (fault, None) if fault else self.judge(source, target)
        self._counts[verdict] += 1
        if pair is None and len(self._bad_lines) < self._SHOWN:
            self._bad_lines.append(sum(self._counts.values()) if place is None else place)
        return pair

    def report(self) -> LineReport:
        """The counts so far."""
        return LineReport(
            split=self._split,
            max_chars=self._max_chars,
            first_bad_lines=tuple(self._bad_lines),
            **self._counts,
        )

    def judge(self, source: bytes | str, target: bytes | str) -> tuple[str, tuple[str, str] | None]:
        """Decides without counting: `kept` and both texts, or a reason and `None`."""
        try:
            pair = (_decoded(source).strip(), _decoded(target).strip())
        except UnicodeError:
            return "invalid_utf8", None
        if any(map(is_blank, pair)):
            return "empty", None
        if any("\0" in text for text in pair):
            return "no_text", None
        if max(map(len, pair)) > self._max_chars:
            return "too_long", None
        return "kept", pair


def _decoded(text: bytes | str) -> str:
    if isinstance(text, bytes):
        return text.decode("utf-8")
    text.encode("utf-8")  # Refuses the surrogates that stand for bytes of another encoding.
    return text


def readable(text: bytes | str) -> str:
    """A text with U+FFFD for what is not UTF-8, without surrounding white space.

    Args:
        text: Bytes, or a string that may hold surrogates.

    Returns:
        The text.
    """
    if isinstance(text, str):
        came_from_bytes = all(
            "\udc80" <= one <= "\udcff" for one in text if "\ud800" <= one <= "\udfff"
        )
        text = text.encode("utf-8", "surrogateescape" if came_from_bytes else "replace")
    return text.decode("utf-8", "replace").strip()
