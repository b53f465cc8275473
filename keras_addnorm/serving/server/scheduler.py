"""Merges requests of many clients into batches and computes them in a few threads."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.loaded_version import Arrays, Signature
from keras_addnorm.serving.server.metrics import Metrics
from keras_addnorm.serving.server.settings import Settings


@dataclasses.dataclass(frozen=True, eq=False)
class _Work:
    signature: Signature
    inputs: Arrays
    rows: int | None  # None if the request cannot be merged with others
    answer: asyncio.Future[Arrays]


@dataclasses.dataclass(eq=False)
class _Batch:
    works: list[_Work] = dataclasses.field(default_factory=list)
    is_due: bool = False

    @property
    def rows(self) -> int:
        return sum(work.rows or 0 for work in self.works)


class Scheduler:
    """Computes requests in order, in batches where merging changes no result, with a bounded queue.

    A request opens a batch of its signature, and later requests join the batch. The batch is *due*
    after a short wait, or as soon as it is full. Requests can join it until a worker takes it, so
    batches become larger when all workers are busy.

    Call all methods in the event loop; the computation runs in threads.

    Args:
        settings: The limits.
        metrics: The metrics to update.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="predict")
        self._idle = settings.workers
        self._waiting: set[_Work] = set()
        self._open: dict[Signature, _Batch] = {}
        self._due: deque[_Batch] = deque()
        self._running: set[asyncio.Task[None]] = set()
        metrics.queue_length.set_function(lambda: len(self._waiting))

    async def run(
        self, signature: Signature, inputs: Arrays, timeout: float | None = None
    ) -> Arrays:
        """Computes one request.

        Args:
            signature: The function.
            inputs: Its inputs, checked.
            timeout: Seconds that the client waits, if less than the server's limit.

        Returns:
            The outputs.

        Raises:
            ServingError: If the queue is full, the time is over, or TensorFlow raises an error.
        """
        if len(self._waiting) >= self._settings.queue:
            raise ServingError(
                "RESOURCE_EXHAUSTED",
                f"The queue is full: {self._settings.queue} requests are waiting. Try again later.",
            )
        limit = min(self._settings.timeout, self._settings.timeout if timeout is None else timeout)
        answer = asyncio.get_running_loop().create_future()
        work = _Work(signature, inputs, _rows(signature, inputs), answer)
        self._waiting.add(work)
        self._enqueue(work)
        try:
            # The timeout cancels the future, and workers skip cancelled requests.
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            raise ServingError(
                "DEADLINE_EXCEEDED", f"The request was not answered within {limit:.3g} seconds."
            ) from None
        finally:
            self._waiting.discard(work)

    async def close(self) -> None:
        """Waits for running computations, and ends the threads."""
        await asyncio.gather(*self._running)
        await asyncio.to_thread(self._pool.shutdown)

    def _enqueue(self, work: _Work) -> None:
        if work.rows is None:
            self._make_due(_Batch([work]))
            return
        largest = self._settings.max_batch_size
        batch = self._open.get(work.signature)
        if batch is not None and batch.rows + work.rows > largest:
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
        while self._idle and self._due:
            batch = self._due.popleft()
            signature = batch.works[0].signature
            if self._open.get(signature) is batch:
                del self._open[signature]
            works = [work for work in batch.works if not work.answer.done()]
            self._waiting.difference_update(works)
            if works:
                self._idle -= 1
                task = asyncio.create_task(self._execute(works))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def _execute(self, works: list[_Work]) -> None:
        if works[0].rows is not None:
            rows = sum(work.rows or 0 for work in works)
            self._metrics.batch_rows.labels(works[0].signature.name).observe(rows)
        loop = asyncio.get_running_loop()
        answers = await loop.run_in_executor(self._pool, _compute, works)
        self._idle += 1
        for work, answer in zip(works, answers, strict=True):
            if work.answer.done():  # the client has stopped waiting
                continue
            if isinstance(answer, Exception):
                work.answer.set_exception(answer)
            else:
                work.answer.set_result(answer)
        self._start()


def _rows(signature: Signature, inputs: Arrays) -> int | None:
    """The number of rows, if the request can be merged with others."""
    if not signature.is_row_by_row:
        return None
    sizes = {len(array) for array in inputs.values()}
    return sizes.pop() if len(sizes) == 1 else None


def _compute(works: Sequence[_Work]) -> list[Arrays | Exception]:
    if len(works) > 1:
        try:
            return list(_merged(works))
        except ServingError as error:
            if error.code == "DEADLINE_EXCEEDED":  # the time of all of them is over
                return [error] * len(works)
        except Exception:  # one request may be at fault: compute each one alone
            pass
    return [_alone(work) for work in works]


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


def _alone(work: _Work) -> Arrays | Exception:
    try:
        return work.signature(work.inputs)
    except Exception as error:
        return error
