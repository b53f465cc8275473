"""Stopping between two batches: the first signal asks for a checkpoint, the second ends at once.

Cluster schedulers send SIGTERM some seconds before they kill; a user presses Ctrl-C.
"""

import contextlib
import os
import signal
import threading
import types
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2


class Stopped(KeyboardInterrupt):
    """A training has stopped because it was asked to, and its checkpoint is written.

    Args:
        signal_number: The signal that asked for it.

    Attributes:
        exit_status: What a process that ends with it returns, 128 + the signal's number.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.exit_status = 128 + signal_number


class StopRequest:
    """Listens for SIGINT (Ctrl-C) and SIGTERM, and remembers that one of them came.

    Pass one to `Checkpoints` and call `fit` within `listening`: `fit` then ends with `Stopped`
    after the next checkpoint, which is written at the end of the batch or, for an epoch's last
    batch, after the validation.

    Example:
        >>> import os, signal
        >>> from keras_addnorm.training import StopRequest
        >>> request = StopRequest()
        >>> with request.listening():
        ...     os.kill(os.getpid(), signal.SIGTERM)
        >>> request.signal_number == signal.SIGTERM
        True
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handles the two signals within the block; not if ignored, nor outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        # An ignored signal stays ignored (`nohup`). None is a handler that is not Python's.
        taken = {n: old for n, old in before.items() if old not in (signal.SIG_IGN, None)}
        for number in taken:
            signal.signal(number, self._hear)
        try:
            yield
        finally:
            for number, old in taken.items():
                signal.signal(number, old)

    def obey(self) -> None:
        """Raises `Stopped` if a signal has come."""
        if self.signal_number is not None:
            raise Stopped(self.signal_number)

    def _hear(self, number: int, frame: types.FrameType | None) -> None:
        if self.signal_number is not None:
            raise KeyboardInterrupt
        self.signal_number = number
        # Not `print`: the signal may have come in the middle of one.
        os.write(
            _STDERR,
            b"\nWriting a checkpoint, then stopping. Press Ctrl-C again to stop now without one.\n",
        )
