"""Files that are either whole or not there."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a temporary path beside `path` and renames it into place if the block succeeds.

    The content is on the disk before it has its name, and the name when this returns: after a power
    cut, too, the file is whole or as it was.

    The temporary name starts with a dot and the process id and ends like the final one, because
    Keras tells file types by their ending.

    Args:
        path: The file to write; its directory is made if it is missing.

    Yields:
        The path to write to.
    """
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f".{os.getpid()}.{final.name}")
    try:
        yield temporary
        flush_to_disk(temporary)
        temporary.replace(final)
        with contextlib.suppress(OSError):  # Some file systems cannot, and some need not.
            flush_to_disk(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def flush_to_disk(path: str | os.PathLike[str]) -> None:
    """Waits until a file's content, or the names in a folder, are on the disk.

    Args:
        path: A file that is written and closed, or a folder.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
