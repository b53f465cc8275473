"""What a process that does nothing but serve asks of Python, of the C library and of the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import sys
from collections.abc import Iterator

# Seconds after which Python lets another thread run. The event loop needs a millisecond and waits
# for that long whenever another thread converts something large; 5 ms are usual.
_SWITCH_SECONDS = 0.001
# `M_ARENA_MAX` of glibc's malloc.h. Each arena keeps what it has freed; 8 for each core are usual.
_ARENA_MAX, _ARENAS = -8, 2


@contextlib.contextmanager
def own_process() -> Iterator[None]:
    """Sets up a process that serves; what can be is undone at the end.

    - Python's collector passes over what is there already. A full collection looks at all of
      TensorFlow, and nothing else runs meanwhile: 200 ms, whenever a request makes many lists.
    - Memory that is free is shared by all threads.
    - As many connections as the system allows may be open.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(_ARENA_MAX, _ARENAS)
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
        gc.unfreeze()
        sys.setswitchinterval(interval)
