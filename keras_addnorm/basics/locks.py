"""Locks on open files and folders, which the system releases when their process ends.

They hold over containers on one machine, and none is left after a kill or a restart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import ArgumentError

_SECONDS_BETWEEN_TRIES = 0.05


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Locks an open file or folder until it is closed or the process ends; says whether it could.

    It could not where another process has it and `wait` is False, or where the file system has no
    locks (some network file systems have none for folders).
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def lock_soon(descriptor: int, seconds: float) -> bool:
    """Locks an open file or folder as `lock` does, and waits so long for a process that ends.

    False means that another process has it; where the file system has no locks, all have it.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_SECONDS_BETWEEN_TRIES)
        except OSError:
            return True
        else:
            return True


@contextlib.contextmanager
def alone(path: str | os.PathLike[str], busy: str = "") -> Iterator[None]:
    """Lets one process at a time change a file, which need not exist: others wait.

    Meanwhile `.<name>.lock` is beside it.

    Args:
        path: The file.
        busy: What is said of another process instead of waiting for it; empty to wait.

    Yields:
        Nothing.

    Raises:
        BlockingIOError: If another process has it, and `busy` is not empty.
        ValueError: If a link is in the place of the lock: a file would be made where it leads.
    """
    path = to_path(path)
    held = path.with_name(f".{path.name}.lock")
    while True:
        if held.is_symlink():
            raise ArgumentError(
                f"'{held}' is a link.", "a file of this library, or nothing", "Remove it."
            )
        descriptor = os.open(held, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        if not busy:
            lock(descriptor)
        elif not lock_soon(descriptor, 0.0):
            os.close(descriptor)
            raise BlockingIOError(busy)
        if _is_still(descriptor, held):
            break
        # Whoever had it has removed it.
        os.close(descriptor)
    try:
        yield
    finally:
        held.unlink(missing_ok=True)
        os.close(descriptor)


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether an open file has its name yet."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
