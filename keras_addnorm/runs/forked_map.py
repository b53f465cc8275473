"""A function of many items in forked processes, whose results come in the order of the items."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs.worker_processes import end_with_other_end_of

Item = TypeVar("Item")
Result = TypeVar("Result")

# Enough that no process waits, and few enough to be in memory.
_ITEMS_OF_A_PROCESS = 2
# What forked processes call: it need not be one that can be pickled.
_function: Callable[[Any], Any] | None = None


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], processes: int
) -> Iterator[tuple[Item, Result]]:
    """Gives each item with what a function makes of it.

    The items are read in this process, a few ahead of those that were given. It does all itself
    where there is one item, or where a copy of it would not work: with threads, or TensorFlow.

    Args:
        function: Takes an item; its results have to be such as can be pickled. What it changes of
            its surroundings is lost.
        items: The items.
        processes: The number of processes.

    Yields:
        An item, and its result.

    Raises:
        UserError: If a process was killed.
    """
    items = iter(items)
    first = list(itertools.islice(items, 2))
    items = itertools.chain(first, items)
    can_fork = threading.active_count() == 1 and "tensorflow" not in sys.modules
    if processes < 2 or len(first) < 2 or not can_fork:
        yield from ((item, function(item)) for item in items)
        return
    global _function
    _function = function
    # Only this process holds the end that is written to: it is closed when this process ends.
    read, write = os.pipe()
    pool = ProcessPoolExecutor(processes, get_context("fork"), _begin, (read, write))
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, pool.submit(_call, item)))
            if len(waiting) >= _ITEMS_OF_A_PROCESS * processes:
                yield _result(*waiting.popleft())
        while waiting:
            yield _result(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)
        os.close(read)
        os.close(write)
        _function = None


def _result(item: Item, future: Future[Result]) -> tuple[Item, Result]:
    try:
        return item, future.result()
    except BrokenProcessPool as error:
        raise UserError(
            "A process of this command was killed, mostly for want of memory. Give the command "
            "again where more is free, or with one core: taskset -c 0 keras-addnorm ..."
        ) from error


def _begin(read: int, write: int) -> None:
    """Makes a process end with the one that it was forked from."""
    os.close(write)
    # Ctrl-C is for the process that waits.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_other_end_of, args=(read,), daemon=True).start()


def _call(item: Any) -> Any:
    assert _function is not None
    return _function(item)
