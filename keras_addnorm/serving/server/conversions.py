"""Reads large requests and writes large answers beside the event loop, in turns."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
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
        """Calls a function.

        Args:
            size: The bytes that it works on.
            function: The function.
            *arguments: Its arguments.

        Returns:
            What it returns.
        """
        if size <= LARGE:
            return function(*arguments)
        call = functools.partial(function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def each(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Makes pieces one by one, each when the one before has been taken.

        Args:
            pieces: Makes them.

        Yields:
            The pieces.
        """
        loop = asyncio.get_running_loop()
        while piece := await loop.run_in_executor(self._pool, next, pieces, b""):
            yield piece

    async def close(self) -> None:
        """Ends the thread."""
        await asyncio.to_thread(self._pool.shutdown)
