"""Says how far a stage is: a line of a terminal, or now and then a line of a log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from keras_addnorm.runs.portions import Portions
from keras_addnorm.runs.terminal import StatusLine, bar

_SECONDS_BETWEEN_LINES = 60.0


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
    said = started
    with StatusLine() as status:

        def done() -> None:
            nonlocal said
            now = time.monotonic()
            if not status.is_watched and now - said < _SECONDS_BETWEEN_LINES:
                return
            said = now
            line = bar(portions.count_done(), portions.total, now - started, before)
            if status.is_watched:
                status.show(line)
            else:
                say(line)

        yield done
