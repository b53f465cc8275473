"""What a command shows: its lines, and one that says what it is doing, if a person watches."""

from __future__ import annotations

import sys
from typing import TextIO

from keras_addnorm.basics.printing import printable, printable_lines

_CLEAR = "\r\x1b[K"


def show(text: object, stream: TextIO | None = None) -> None:
    """Prints what a command has to say; characters that a terminal would follow are escaped."""
    print(printable_lines(str(text)), file=stream, flush=True)


class StatusLine:
    """A line of a terminal that is written over again and again; nothing elsewhere.

    Args:
        stream: Where to; by default the standard error.

    Example:
        >>> import io
        >>> with StatusLine(io.StringIO()) as status:  # At the end of the block it is gone.
        ...     status.show("No terminal: nothing is written.")
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = False

    @classmethod
    def saying(cls, text: str) -> StatusLine:
        """Returns a line that says something until the end of its block."""
        status = cls()
        status.show(text)
        return status

    @property
    def is_watched(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    def show(self, text: str) -> None:
        """Writes what the command is doing over the line before."""
        if self.is_watched:
            self._stream.write(_CLEAR + printable(text))
            self._stream.flush()
            self._is_shown = True

    def clear(self) -> None:
        """Takes the line away, before something else is written to the terminal."""
        if self._is_shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._is_shown = False

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()


def duration(seconds: float) -> str:
    """Writes a duration in words, such as `2 h 05 min`, `3 min 20 s` or `8 s`."""
    seconds = round(seconds)
    if seconds >= 3600:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    if seconds >= 60:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds} s"


def bar(done: int, total: int | None, seconds: float, before: int = 0) -> str:
    """Writes how far a translation is, of a `total` that may not be known yet.

    Those that were done `before` the clock was started took none of the `seconds`.
    """
    new = done - before
    rate = new / seconds if seconds > 0 else 0.0
    # Not `0 texts/s` of a slow model.
    speed = f"{rate:,.{0 if rate >= 10 else 1}f} texts/s" if rate else "compiling"
    if total is None:
        return f"Translating: {done:,} texts, {speed}"
    full = 20 * done // max(total, 1)
    left = f", {duration((total - done) / rate)} left" if rate else ""
    return (
        f"Translating: [{'=' * full}{' ' * (20 - full)}] {done:,} of {total:,} texts, {speed}{left}"
    )
