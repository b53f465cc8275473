"""Asked to stop, a training writes a checkpoint and ends."""

import os
import signal
import threading

import keras
import numpy as np
import pytest

from keras_addnorm.training import Checkpoints, Stopped, StopRequest, TrainingPosition


@pytest.fixture(autouse=True)
def _handlers():
    """Those of a process in the foreground; one in a shell's background ignores SIGINT."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Data:
    """A data set whose place is of no interest here."""

    def start_at(self, epoch, batch=0):
        """Nothing is left out."""


def fit(folder, request, ask_at, signals=(signal.SIGTERM,), epochs=2):
    """Two epochs of four batches; somebody asks at a batch, counted from 0 over all epochs."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    position = TrainingPosition(Data(), 4)
    seen = []

    def at_batch(batch, logs):
        seen.append(batch)
        if len(seen) == ask_at + 1:
            for number in signals:
                os.kill(os.getpid(), number)

    asking = keras.callbacks.LambdaCallback(on_train_batch_end=at_batch)
    saver = Checkpoints(folder, position, stop_request=request)
    data = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
    with request.listening():
        model.fit(
            *data, batch_size=2, epochs=epochs, verbose=0, callbacks=[position, asking, saver]
        )


@pytest.mark.parametrize(
    ("ask_at", "written"),
    [
        (1, ["epoch-0000-batch-000002"]),
        (3, ["epoch-0001"]),
        (5, ["epoch-0001", "epoch-0001-batch-000002"]),
    ],
    ids=["inside", "at the end of an epoch", "in the second"],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_with_a_checkpoint_of_the_last_batch(tmp_path, ask_at, written, number):
    with pytest.raises(Stopped, match=number.name) as stopped:
        fit(tmp_path, StopRequest(), ask_at, [number])
    assert stopped.value.exit_status == 128 + number
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert {path.name for path in tmp_path.iterdir()} == {f"{w}.weights.h5" for w in written}


def test_asked_twice_it_ends_at_once(tmp_path):
    with pytest.raises(KeyboardInterrupt) as ended:
        fit(tmp_path, StopRequest(), 1, [signal.SIGTERM, signal.SIGTERM])
    assert not isinstance(ended.value, Stopped)
    assert not list(tmp_path.iterdir())


def test_it_says_that_it_heard(capfd):
    with StopRequest().listening():
        os.kill(os.getpid(), signal.SIGTERM)
    heard = capfd.readouterr().err
    assert "Writing a checkpoint, then stopping. Press Ctrl-C again to stop now" in heard


def test_handlers_are_those_from_before(tmp_path):
    own = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Stopped):
        fit(tmp_path, StopRequest(), 0)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == own


def test_what_is_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = StopRequest()
    with request.listening():
        os.kill(os.getpid(), signal.SIGINT)
    assert request.signal_number is None
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_another_thread_leaves_signals_alone():
    heard = []

    def listen():
        with StopRequest().listening():
            heard.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert heard == [before]
