"""Locks on open files and folders, which the system releases when their process ends.

They hold over containers on one machine, and none is left after a kill or a restart.
"""

from __future__ import annotations

import fcntl


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Locks an open file or folder until it is closed or the process ends.

    Args:
        descriptor: The open file or folder.
        wait: Whether to wait while another process has it locked.

    Returns:
        Whether it is locked now. It is not if another process has it, or the file system has no
        locks for it (some network file systems have none for folders).
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
