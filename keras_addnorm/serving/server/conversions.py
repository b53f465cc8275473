"""Reads large requests and writes large answers beside the event loop, in turns."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from keras_addnorm.serving.server.limits import LARGE

_T = TypeVar("_T")


class Conversions:
    """Converts what is small at once, and what is large in one thread.

    One thread, since Python runs one at a time anyway: with several of them the event loop would
    wait for each. Pieces of several answers take turns.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="convert")

    async def run(self, size: int, function: Callable[..., _T], *arguments: Any) -> _T:
        """Calls a function that works on `size` bytes."""
        if size <= LARGE:
            return function(*arguments)
        call = functools.partial(function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def each(self, pieces: Generator[bytes, None, None]) -> AsyncGenerator[bytes, None]:
        """Makes pieces one by one, each when the one before has been taken."""
        loop = asyncio.get_running_loop()
        try:
            while piece := await loop.run_in_executor(self._pool, next, pieces, b""):
                yield piece
        finally:
            # What they are made of is given back at once; if the thread is at it, soon.
            with contextlib.suppress(ValueError):
                pieces.close()

    async def close(self) -> None:
        """Ends the thread."""
        await asyncio.to_thread(self._pool.shutdown)
