"""Says how far a stage is: a line of a terminal, or now and then a line of a log."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from keras_addnorm.runs.portions import Portions
from keras_addnorm.runs.terminal import StatusLine, bar

_SECONDS_BETWEEN_LINES = 60.0
_SECONDS_WORTH_A_LINE = 10.0


@contextlib.contextmanager
def filling(portions: Portions[Any], say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Gives what is to be called while portions are filled, which says how far they are.

    Args:
        portions: The portions.
        say: Takes lines for the user, where nobody watches a terminal.

    Yields:
        The function.
    """
    before, started = portions.count_done(), time.monotonic()
    if before and not portions.is_full:
        say(f"{before:,} of {portions.total:,} texts are there already.")
    said, first_count, first_time = -math.inf, before, started
    with StatusLine() as status:

        def done() -> None:
            nonlocal said, first_count, first_time
            now = time.monotonic()
            if not status.is_watched and now - said < _SECONDS_BETWEEN_LINES:
                return
            count = portions.count_done()
            # What came first took the time to load and to compile as well.
            is_steady = count > first_count > before
            since, known = (first_time, first_count) if is_steady else (started, before)
            line = bar(count, portions.total, now - since, known)
            line += ", compiling included" * (not is_steady and count > before)
            left = (now - since) * (portions.total - count) / max(count - known, 1)
            if status.is_watched:
                status.show(line)
            elif count > before and (said > -math.inf or left > _SECONDS_WORTH_A_LINE):
                said = now
                say(line)
            if first_count == before:
                first_count, first_time = count, now

        yield done
