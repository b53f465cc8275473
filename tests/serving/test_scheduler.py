"""Merging requests: which, when, and what each of them gets back."""

import asyncio
import math
import threading

import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.loaded_version import Signature, Spec
from keras_addnorm.serving.server.metrics import Metrics
from keras_addnorm.serving.server.portions import Portions
from keras_addnorm.serving.server.scheduler import Scheduler
from keras_addnorm.serving.server.settings import Settings

ROW = Spec(tf.float32, (None,))


def doubling(calls, inputs=("x",), output=ROW):
    """A signature that doubles its first input, and writes down what it was called with."""

    def function(**arrays):
        x = arrays[inputs[0]]
        calls.append(x.tolist())
        if (x == 13).any():
            raise tf.errors.InvalidArgumentError(None, None, "thirteen\n[[node a]]")
        return {"y": 2 * x}

    return Signature("f", 1, dict.fromkeys(inputs, ROW), {"y": output}, function)


def row(*values):
    return {"x": np.array(values, np.float32)}


def run(work, **settings):
    """Runs `work(scheduler)` with a scheduler; a batch waits long enough for all to join."""

    async def inside():
        scheduler = Scheduler(
            Settings(".", **{"workers": 1, "batch_timeout_ms": 50, **settings}), Metrics()
        )
        try:
            return await work(scheduler)
        finally:
            await scheduler.close()

    return asyncio.run(inside())


def all_at_once(scheduler, signature, requests):
    calls = [scheduler.run(signature, inputs) for inputs in requests]
    return asyncio.gather(*calls, return_exceptions=True)


def test_requests_are_merged_and_split():
    calls = []
    requests = [row(1), row(2, 3), row(), row(5)]
    answers = run(lambda scheduler: all_at_once(scheduler, doubling(calls), requests))
    assert calls == [[1, 2, 3, 5]]
    assert [answer["y"].tolist() for answer in answers] == [[2], [4, 6], [], [10]]


def test_a_batch_has_its_largest_size():
    calls = []
    requests = [row(1, 2), row(3), row(4, 5), row(6, 7, 8, 9, 10), row(11)]
    answers = run(
        lambda scheduler: all_at_once(scheduler, doubling(calls), requests), max_batch_size=3
    )
    # What is larger by itself is computed by itself.
    assert calls == [[1, 2, 3], [4, 5], [6, 7, 8, 9, 10], [11]]
    assert [answer["y"].tolist() for answer in answers] == [
        [2 * x for x in request["x"]] for request in requests
    ]


def test_one_row_a_batch_merges_nothing():
    calls = []
    run(lambda s: all_at_once(s, doubling(calls), [row(1), row(2)]), max_batch_size=1)
    assert calls == [[1], [2]]


def test_one_bad_request_spoils_no_other():
    calls = []
    requests = [row(1), row(13), row(3)]
    good, bad, other = run(lambda s: all_at_once(s, doubling(calls), requests))
    # The batch is halved until the bad one is alone.
    assert calls == [[1, 13, 3], [1], [13, 3], [13], [3]]
    assert (good["y"].tolist(), other["y"].tolist()) == ([2], [6])
    assert isinstance(bad, ServingError)
    assert (bad.code, bad.message) == ("INVALID_ARGUMENT", "thirteen")


def test_a_batch_whose_time_is_over_is_not_computed_again():
    calls = []

    def function(x):
        calls.append(x.tolist())
        raise tf.errors.DeadlineExceededError(None, None, "Timed out")

    signature = Signature("f", 1, {"x": ROW}, {"y": ROW}, function)
    answers = run(lambda s: all_at_once(s, signature, [row(1), row(2)]))
    assert calls == [[1, 2]]
    assert [answer.code for answer in answers] == ["DEADLINE_EXCEEDED"] * 2


@pytest.mark.parametrize(
    "spec", [Spec(tf.float32, (None, None)), Spec(tf.float32, ()), Spec(tf.float32, None)]
)
def test_outputs_that_are_no_rows_are_not_merged(spec):
    calls = []
    run(lambda s: all_at_once(s, doubling(calls, output=spec), [row(1), row(2)]))
    assert calls == [[1], [2]]


def test_inputs_of_different_lengths_are_not_merged():
    calls = []
    signature = doubling(calls, inputs=("x", "z"))
    requests = [row(1) | {"z": np.ones(n, np.float32)} for n in (1, 2, 1)]
    run(lambda s: all_at_once(s, signature, requests))
    assert sorted(calls) == [[1], [1, 1]]


def test_a_signature_that_does_not_keep_its_word():
    """It says that its output has rows, and gives one for all of them."""
    calls = []

    def function(x):
        calls.append(x.tolist())
        return {"y": x[:1]}

    signature = Signature("f", 1, {"x": ROW}, {"y": ROW}, function)
    answers = run(lambda s: all_at_once(s, signature, [row(1), row(2)]))
    assert [answer["y"].tolist() for answer in answers] == [[1], [2]]


def test_batches_grow_while_the_worker_is_busy():
    calls, go_on, begun = [], threading.Event(), threading.Event()
    signature = doubling(calls)

    def slow(**arrays):
        begun.set()
        assert go_on.wait(60)
        return signature.function(**arrays)

    import dataclasses

    waiting = dataclasses.replace(signature, function=slow)

    async def work(scheduler):
        first = asyncio.create_task(scheduler.run(waiting, row(1)))
        await asyncio.to_thread(begun.wait, 60)
        others = [asyncio.create_task(scheduler.run(waiting, row(n))) for n in (2, 3)]
        await asyncio.sleep(0.02)  # longer than a batch waits
        others += [asyncio.create_task(scheduler.run(waiting, row(4)))]
        await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(first, *others)

    answers = run(work, batch_timeout_ms=1)
    assert calls == [[1], [2, 3, 4]]
    assert [answer["y"].tolist() for answer in answers] == [[2], [4], [6], [8]]


def test_who_gives_up_is_not_computed():
    calls, go_on = [], threading.Event()
    signature = doubling(calls)

    def wait(**arrays):
        assert go_on.wait(60)
        return signature.function(**arrays)

    import dataclasses

    waiting = dataclasses.replace(signature, function=wait)

    async def work(scheduler):
        first = asyncio.create_task(scheduler.run(waiting, row(1)))
        await asyncio.sleep(0.01)
        with pytest.raises(ServingError, match="DEADLINE_EXCEEDED"):
            await scheduler.run(waiting, row(2), timeout=0.01)
        gone = asyncio.create_task(scheduler.run(waiting, row(3)))
        await asyncio.sleep(0)
        gone.cancel()
        last = asyncio.create_task(scheduler.run(waiting, row(4)))
        await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(first, last)

    run(work, batch_timeout_ms=0)
    assert calls == [[1], [4]]


def test_many_bad_requests_are_found_by_halves():
    calls = []
    run(lambda s: all_at_once(s, doubling(calls), [row(n) for n in range(1, 33)]))
    assert calls[0] == list(range(1, 33))
    # Two halves at each of five sizes, in place of 32 single ones.
    assert len(calls) == 1 + 2 * 5


class Turns:
    """A signature whose calls wait until each is let go, so that their order can be seen."""

    def __init__(self, output=ROW):
        self.calls, self.goes = [], []
        self.came = threading.Semaphore(0)
        self.signature = Signature("f", 1, {"x": ROW}, {"y": output}, self._call)

    def _call(self, x):
        go = threading.Event()
        self.calls.append(sorted({int(value) // 1000 for value in x}))
        self.goes.append(go)
        self.came.release()
        assert go.wait(60)
        return {"y": 2 * x}

    async def next(self):
        """Waits for a call; returns which requests it is for."""
        assert await asyncio.to_thread(self.came.acquire, timeout=60)
        return self.calls[-1]

    def let_go(self, call):
        self.goes[call].set()

    async def finish(self, *tasks):
        """Lets all calls go, those to come, too."""
        answers = asyncio.gather(*tasks)
        while not answers.done():
            for go in self.goes:
                go.set()
            await asyncio.sleep(0.001)
        return await answers


def large(number, rows=150):
    return row(*(1000 * number + np.arange(rows)))


def test_large_requests_take_turns():
    turns = Turns()

    async def work(scheduler):
        requests = [
            asyncio.create_task(scheduler.run(turns.signature, large(n))) for n in (1, 2, 3)
        ]
        for call in range(9):
            await turns.next()
            turns.let_go(call)
        return await asyncio.gather(*requests)

    answers = run(work)
    assert turns.calls == [[1], [2], [3]] * 3
    for number, answer in zip((1, 2, 3), answers, strict=True):
        assert answer["y"].tolist() == (2 * large(number)["x"]).tolist()


def test_a_small_request_waits_for_no_large_one():
    """One worker is at work on a large request; another one comes for small ones alone."""
    turns = Turns()

    async def work(scheduler):
        big = [asyncio.create_task(scheduler.run(turns.signature, large(n))) for n in (1, 2)]
        assert await turns.next() == [1]
        small = asyncio.create_task(scheduler.run(turns.signature, row(5000)))
        assert await turns.next() == [5]
        turns.let_go(1)
        assert (await small)["y"].tolist() == [10_000]
        # The next portion waits for the worker.
        assert turns.calls == [[1], [5]]
        return await turns.finish(*big)

    assert len(run(work, batch_timeout_ms=0)) == 2


def test_small_requests_do_not_keep_a_large_one_waiting():
    turns = Turns()

    async def work(scheduler):
        def ask(inputs):
            return asyncio.create_task(scheduler.run(turns.signature, inputs))

        tasks = [ask(row(1000)), ask(row(2000))]
        await turns.next()
        await turns.next()
        tasks += [ask(row(3000)), ask(large(4, 65)), ask(row(5000))]
        await asyncio.sleep(0.01)
        assert len(turns.calls) == 2
        turns.let_go(0)
        assert {*await turns.next(), *await turns.next()} <= {3, 4}
        # The large one has the worker that became free, the small one the one that is added.
        assert sorted(turns.calls[2:]) == [[3], [4]]
        await turns.finish(*tasks)

    run(work, workers=2, batch_timeout_ms=0, max_batch_size=1)
    assert turns.calls.index([4]) < turns.calls.index([5])


def test_portions_are_of_like_length_and_bounded():
    texts = np.array([b"a" * n for n in (9000, 1, 9000, 20_000, 2, 3)] + [b"bb"] * 70, object)
    cut = Portions({"texts": texts})
    seen = []
    while cut:
        inputs = cut.next()
        seen.append([len(text) for text in inputs["texts"]])
        cut.put({"n": np.array(seen[-1])})
    assert seen == [[1] + [2] * 63, [2] * 8 + [3, 9000], [9000], [20_000]]
    assert cut.whole()["n"].tolist() == [len(text) for text in texts]
    cut = Portions({"texts": texts, "more": np.array([b"c"] * len(texts), object)})
    cut.next()
    with pytest.raises(ValueError, match="does not answer row by row"):
        cut.put({"n": np.zeros(63)})


def test_a_large_request_that_cannot_be_divided_is_computed_at_once():
    calls = []
    matrix = Spec(tf.float32, (None, None))
    for output in (matrix, ROW):

        def function(x):
            calls.append(len(x))
            return {"y": x[:1]}

        signature = Signature("f", 1, {"x": ROW}, {"y": output}, function)
        answer = run(lambda s, signature=signature: s.run(signature, large(1, 100)))
        assert answer["y"].tolist() == [1000]
    # The second one says that it answers row by row, and does not.
    assert calls == [100, 64, 100]


def test_a_large_request_that_fails_ends():
    calls = []
    inputs = large(1, 200)
    inputs["x"][70] = 13
    with pytest.raises(ServingError, match="thirteen"):
        run(lambda s: s.run(doubling(calls), inputs))
    assert len(calls) == 2


def test_who_gives_up_a_large_request_is_not_computed_further():
    turns = Turns()

    async def work(scheduler):
        gone = asyncio.create_task(scheduler.run(turns.signature, large(1)))
        await turns.next()
        gone.cancel()
        other = asyncio.create_task(scheduler.run(turns.signature, large(2, 65)))
        await asyncio.sleep(0)
        await turns.finish(other)

    run(work)
    assert turns.calls == [[1], [2], [2]]


def test_a_large_request_has_the_time_of_its_portions():
    """What the limit of rows lets in, the limit of time lets end."""
    turns, limit = Turns(), 0.5

    async def work(scheduler):
        # 17 portions, with 8.5 s; one portion would have had half a second.
        answer = asyncio.create_task(scheduler.run(turns.signature, large(0, 1088)))
        await asyncio.sleep(2 * limit)
        answer = await turns.finish(answer)
        late = asyncio.create_task(scheduler.run(turns.signature, large(0, 1088), limit))
        with pytest.raises(ServingError, match=r"within 0.5 seconds. It has 17 portions"):
            await late
        for go in turns.goes:
            go.set()
        return answer

    (answer,) = run(work, timeout=limit)
    assert answer["y"].tolist() == (2 * large(0, 1088)["x"]).tolist()


def test_a_large_request_has_twenty_times_the_limit_at_most():
    turns = Turns()

    async def work(scheduler):
        late = asyncio.create_task(scheduler.run(turns.signature, large(0, 6400)))
        await turns.next()
        with pytest.raises(ServingError, match=r"within 0.1 seconds. It has 100 portions"):
            await late
        turns.let_go(0)

    run(work, timeout=0.005)
    assert len(turns.calls) == 1


def test_a_batch_of_long_texts_is_full_sooner():
    calls = []
    text = Spec(tf.string, (None,))

    def function(texts):
        calls.append(len(texts))
        return {"texts": texts}

    signature = Signature("f", 1, {"texts": text}, {"texts": text}, function)
    requests = [{"texts": np.array([b"a" * 5000], object)} for _ in range(5)]
    answers = run(lambda s: all_at_once(s, signature, requests))
    assert calls == [3, 2] and len(answers) == 5


@pytest.mark.parametrize("field", ["queue", "workers", "max_batch_size", "max_request_bytes"])
def test_limits_are_positive(field):
    with pytest.raises(ValueError, match=f"server.{field} must be at least 1. Received: 0"):
        Settings(".", **{field: 0})


def test_all_wrong_settings_are_named_at_once():
    wrong = {"timeout": 0, "batch_timeout_ms": math.inf, "host": "", "queue": 2**70}
    with pytest.raises(ValueError, match="3 settings are wrong") as error:
        Settings(".", **wrong)
    for words in ("timeout must be above 0", "ms must be a number, finite", "host must be a name"):
        assert words in str(error.value)


@pytest.mark.parametrize("port", [-1, 2**16])
@pytest.mark.parametrize("field", ["port", "grpc_port"])
def test_ports_are_ports(field, port):
    with pytest.raises(
        ValueError, match=f"server.{field} must be at least 0 and at most 65535. Received: {port}"
    ):
        Settings(".", **{field: port})


def test_threads_of_an_operation_may_be_left_to_tensorflow():
    assert Settings(".", intra_op_threads=0).intra_op_threads == 0
    with pytest.raises(ValueError, match=r"intra_op_threads must be at least 0. Received: -1"):
        Settings(".", intra_op_threads=-1)
