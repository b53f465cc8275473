"""Merges small requests of many clients, divides large ones, and computes them in a few threads."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server import portions
from keras_addnorm.serving.server.limits import bytes_of, count_rows
from keras_addnorm.serving.server.loaded_version import Signature
from keras_addnorm.serving.server.metrics import Metrics
from keras_addnorm.serving.server.proto_tensors import Arrays
from keras_addnorm.serving.server.settings import Settings

MOST_TIMES = 20
"""How many times the limit of time a large request may take at most."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Work:
    signature: Signature
    inputs: Arrays
    rows: int | None  # None if the request cannot be merged with others
    size: int
    answer: asyncio.Future[Arrays]


@dataclasses.dataclass(eq=False)
class _Batch:
    works: list[_Work] = dataclasses.field(default_factory=list)
    is_due: bool = False

    @property
    def rows(self) -> int:
        return sum(work.rows or 0 for work in self.works)

    @property
    def size(self) -> int:
        return sum(work.size for work in self.works)


@dataclasses.dataclass(eq=False)
class _Large:
    """A large request; without portions if it has to be computed at once."""

    work: _Work
    portions: portions.Portions | None


class Scheduler:
    """Computes requests in turns, with a bounded queue.

    Small requests are computed in order, in batches where merging changes no result. One opens a
    batch of its signature, and later ones join the batch. The batch is *due* after a short wait, or
    as soon as it is full. Requests can join it until a worker takes it, so batches become larger
    when all workers are busy.

    Large requests are divided into portions where that changes no result, and take turns: a portion
    of each. They never keep small ones waiting: while they are computed, there is one worker more,
    and it computes small ones only. Nor do small ones keep large ones waiting for ever: a worker
    takes a large one, if there is none at work.

    Call all methods in the event loop; the computation runs in threads.

    Args:
        settings: The limits.
        metrics: The metrics to update.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(settings.workers + 1, thread_name_prefix="predict")
        self._small_at_work = self._large_at_work = 0
        self._waiting: set[_Work] = set()
        self._open: dict[Signature, _Batch] = {}
        self._due: deque[_Batch] = deque()
        self._large: deque[_Large] = deque()
        self._most_rows = max(portions.ROWS, settings.max_batch_size)
        self._running: set[asyncio.Task[None]] = set()
        metrics.queue_length.set_function(lambda: len(self._waiting))

    async def run(
        self, signature: Signature, inputs: Arrays, timeout: float | None = None
    ) -> Arrays:
        """Computes one request, or raises a `ServingError`.

        A request may take the server's time limit, and a large one as many times that as it has
        portions, at most twenty times. `timeout` is in seconds, where a client or its protocol
        waits less. A request that is cancelled is computed no further than its present portion.
        """
        if len(self._waiting) >= self._settings.queue:
            raise ServingError(
                "RESOURCE_EXHAUSTED",
                f"The queue is full: {self._settings.queue} requests are waiting. Try again later.",
            )
        answer = asyncio.get_running_loop().create_future()
        work = _Work(signature, inputs, _rows(signature, inputs), bytes_of(inputs), answer)
        self._waiting.add(work)
        count = self._enqueue(work)
        limit = self._settings.timeout * min(count, MOST_TIMES)
        if timeout is not None:
            limit = min(limit, timeout)
        try:
            # The timeout cancels the future, and workers skip cancelled requests.
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            hint = f" It has {count} portions, computed in turns: send it in parts."
            raise ServingError(
                "DEADLINE_EXCEEDED",
                f"The request was not answered within {limit:.3g} seconds.{hint * (count > 1)}",
            ) from None
        finally:
            self._waiting.discard(work)

    async def close(self) -> None:
        """Waits for running computations, and ends the threads."""
        # From Python 3.12 on, waiting for none but finished ones lets nothing else run.
        while running := [task for task in self._running if not task.done()]:
            await asyncio.gather(*running)
        await asyncio.to_thread(self._pool.shutdown)

    def _enqueue(self, work: _Work) -> int:
        """Puts a request into its place; returns the number of its portions."""
        if count_rows(work.inputs) > self._most_rows or work.size > portions.BYTES:
            large = _large(work, self._most_rows)
            count = 1 if large.portions is None else len(large.portions)
            self._large.append(large)
            self._start()
            return count
        if work.rows is None:
            self._make_due(_Batch([work]))
        else:
            self._join(work, work.rows)
        return 1

    def _join(self, work: _Work, rows: int) -> None:
        """Puts a small request into an open batch."""
        largest = self._settings.max_batch_size
        batch = self._open.get(work.signature)
        if batch is not None and (
            batch.rows + rows > largest or batch.size + work.size > portions.BYTES
        ):
            del self._open[work.signature]
            self._make_due(batch)
            batch = None
        if batch is None:
            batch = self._open[work.signature] = _Batch()
            wait = self._settings.batch_timeout_ms / 1000
            asyncio.get_running_loop().call_later(wait, self._make_due, batch)
        batch.works.append(work)
        if batch.rows >= largest:
            del self._open[work.signature]
            self._make_due(batch)

    def _make_due(self, batch: _Batch) -> None:
        if not batch.is_due:
            batch.is_due = True
            self._due.append(batch)
            self._start()

    def _start(self) -> None:
        """Gives work to all who may take some."""
        self._large = deque(one for one in self._large if not one.work.answer.done())
        workers = self._settings.workers
        while True:
            at_work = self._small_at_work + self._large_at_work
            is_turn_of_large = not self._due or not self._large_at_work
            if self._large and at_work < workers and is_turn_of_large:
                self._start_large(self._large.popleft())
            elif self._due and self._small_at_work < workers and at_work <= workers:
                self._start_small(self._due.popleft())
            else:
                return

    def _start_small(self, batch: _Batch) -> None:
        signature = batch.works[0].signature
        if self._open.get(signature) is batch:
            del self._open[signature]
        works = [work for work in batch.works if not work.answer.done()]
        self._waiting.difference_update(works)
        if works:
            self._small_at_work += 1
            self._run(self._compute_small(works))

    def _start_large(self, large: _Large) -> None:
        inputs = large.work.inputs if large.portions is None else large.portions.next()
        if not large.portions:
            self._waiting.discard(large.work)
        self._large_at_work += 1
        self._run(self._compute_large(large, inputs))

    def _run(self, computation: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(computation)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _compute_small(self, works: list[_Work]) -> None:
        if works[0].rows is not None:
            self._observe(works[0].signature, sum(work.rows or 0 for work in works))
        loop = asyncio.get_running_loop()
        answers = await loop.run_in_executor(self._pool, _compute, works)
        self._small_at_work -= 1
        for work, answer in zip(works, answers, strict=True):
            _settle(work, answer)
        self._start()

    async def _compute_large(self, large: _Large, inputs: Arrays) -> None:
        work = large.work
        if work.rows is not None:
            self._observe(work.signature, count_rows(inputs))
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._pool, _beside, work.signature, inputs)
        self._large_at_work -= 1
        if large.portions is not None and not isinstance(answer, Exception):
            try:
                large.portions.put(answer)
            except ValueError:
                self._large.append(_Large(work, None))
            else:
                if large.portions:
                    self._large.append(large)
                else:
                    _settle(work, large.portions.whole())
        else:
            _settle(work, answer)
        self._start()

    def _observe(self, signature: Signature, rows: int) -> None:
        self._metrics.batch_rows.labels(signature.name).observe(rows)


def _large(work: _Work, most_rows: int) -> _Large:
    # A single row cannot be divided.
    if work.rows is None or work.rows < 2:
        return _Large(work, None)
    return _Large(work, portions.Portions(work.inputs, most_rows))


def _rows(signature: Signature, inputs: Arrays) -> int | None:
    """The number of rows, if the request can be merged with others."""
    if not signature.is_row_by_row:
        return None
    sizes = {len(array) for array in inputs.values()}
    return sizes.pop() if len(sizes) == 1 else None


def _settle(work: _Work, answer: Arrays | Exception) -> None:
    if work.answer.done():  # the client has stopped waiting
        return
    if isinstance(answer, Exception):
        work.answer.set_exception(answer)
    else:
        work.answer.set_result(answer)


def _compute(works: Sequence[_Work]) -> list[Arrays | Exception]:
    if len(works) == 1:
        return [_alone(works[0].signature, works[0].inputs)]
    try:
        return list(_merged(works))
    except ServingError as error:
        if error.code == "DEADLINE_EXCEEDED":  # the time of all of them is over
            return [error] * len(works)
    except Exception:
        pass
    # One request may be at fault: its half is halved until it is alone.
    middle = len(works) // 2
    return [*_compute(works[:middle]), *_compute(works[middle:])]


def _merged(works: Sequence[_Work]) -> list[Arrays]:
    signature = works[0].signature
    ends = np.cumsum([work.rows for work in works])
    inputs = {
        name: np.concatenate([work.inputs[name] for work in works]) for name in signature.inputs
    }
    outputs = signature(inputs)
    if any(len(array) != ends[-1] for array in outputs.values()):
        raise ValueError("The signature does not answer row by row.")
    parts = {name: np.split(array, ends[:-1]) for name, array in outputs.items()}
    return [{name: part[index] for name, part in parts.items()} for index in range(len(works))]


def _beside(signature: Signature, inputs: Arrays) -> Arrays | Exception:
    return _alone(signature, inputs, is_large=True)


def _alone(signature: Signature, inputs: Arrays, *, is_large: bool = False) -> Arrays | Exception:
    try:
        return signature(inputs, is_large=is_large)
    except Exception as error:
        return error
