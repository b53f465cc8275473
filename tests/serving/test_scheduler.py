"""Merging requests: which, when, and what each of them gets back."""

import asyncio
import threading

import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.serving.errors import ServingError
from keras_addnorm.serving.server.loaded_version import Signature, Spec
from keras_addnorm.serving.server.metrics import Metrics
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
    assert calls == [[1, 13, 3], [1], [13], [3]]
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


@pytest.mark.parametrize("field", ["queue", "timeout", "workers", "max_batch_size", "max_rows"])
def test_limits_are_positive(field):
    with pytest.raises(ValueError, match=f"Expected a positive `{field}`; received 0"):
        Settings(".", **{field: 0})


@pytest.mark.parametrize("port", [-1, 2**16])
@pytest.mark.parametrize("field", ["port", "grpc_port"])
def test_ports_are_ports(field, port):
    with pytest.raises(ValueError, match=f"Expected `{field}` from 0 to 65535; received {port}"):
        Settings(".", **{field: port})


def test_threads_of_an_operation_may_be_left_to_tensorflow():
    assert Settings(".", intra_op_threads=0).intra_op_threads == 0
    with pytest.raises(ValueError, match="Expected intra_op_threads >= 0; received -1"):
        Settings(".", intra_op_threads=-1)
