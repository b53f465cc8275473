"""Pauses a signature until it is released: a busy server, without a clock."""

import contextlib
import dataclasses
import threading


@contextlib.contextmanager
def paused(server, name="serving_default"):
    """Makes a signature wait. Yields (entered, release): a semaphore, counted up by each call."""
    signatures = server.service.versions.current.signatures
    original = signatures[name]
    entered, release = threading.Semaphore(0), threading.Event()

    def wait(**arrays):
        entered.release()
        assert release.wait(60)
        return original.function(**arrays)

    signatures[name] = dataclasses.replace(original, function=wait)
    try:
        yield entered, release
    finally:
        release.set()
        signatures[name] = original
