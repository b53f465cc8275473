"""Atomic writes: a file or folder is there as a whole, or as it was before."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.locks import lock

_SECONDS_FOR_A_READER = 5.0
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
# The temporary names of `atomic_folder`: eight random characters of `tempfile`, and an ending by
# which nobody's `.corpus-original` is taken for one.
_ENDING = ".tmp"
_TEMPORARY = re.compile(rf"\.(?P<name>.+)-[a-z0-9_]{{8}}{re.escape(_ENDING)}", re.DOTALL)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`, and rename it into place if the block succeeds.

    The content is on the disk before it has its name, and the name is on the disk when this
    returns: after a power cut, too, the file is whole or as it was. After an error nothing is left.

    The temporary name is `.<process id>.<name>`: it ends like the final one, because Keras tells
    file types by their ending.

    Args:
        path: The file to write. Missing folders are made; an existing file is replaced. A device
            or a pipe is written to as it is: `/dev/stdout`, say.

    Yields:
        The path to write to.

    Raises:
        ValueError: If there is a pipe that nobody reads, at which one would wait, or a socket.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "scores.txt")
        >>> with atomic_file(path) as temporary:
        ...     _ = temporary.write_text("40.7")
        >>> path.read_text()
        '40.7'
    """
    final = to_path(path)
    if is_device(final):
        with _reader_of(final):
            yield final
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f".{os.getpid()}.{final.name}")
    # A link of that name would lead what is written elsewhere.
    temporary.unlink(missing_ok=True)
    try:
        yield temporary
        flush_to_disk(temporary)
        os.replace(temporary, final)
        flush_to_disk(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _reader_of(path: Path) -> Iterator[None]:
    """Keeps a pipe's reader in the block; without one, opening the pipe would wait for ever."""
    mode = path.stat().st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        yield
        return
    end = time.monotonic() + _SECONDS_FOR_A_READER
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > end or stat.S_ISSOCK(mode):
                what = "a socket" if stat.S_ISSOCK(mode) else "a pipe that nobody reads"
                raise ArgumentError(
                    f"'{path}' is {what}.",
                    "a place for a file",
                    "Remove it, or begin to read it before it is written.",
                ) from error
        time.sleep(0.05)
    try:
        yield
    finally:
        os.close(descriptor)


def is_device(path: str | os.PathLike[str]) -> bool:
    """Tells whether a path is no place for a file: there is a device or a pipe."""
    path = to_path(path)
    is_special = not path.is_file() or path.parent == Path("/dev")
    return path.exists() and not path.is_dir() and is_special


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary folder beside `path`, and rename it into place if the block succeeds.

    All files and folders inside are on the disk before the folder has its name. After an error
    nothing is left. What a killed process has left of this folder is removed; see
    `remove_leftovers`.

    Args:
        path: The folder to make. Missing folders above it are made, too.

    Yields:
        The folder to write to, `.<name>-<random>.tmp`.

    Raises:
        FileExistsError: If there is something of that name. A folder is never replaced.
    """
    final = to_path(path)
    if os.path.lexists(final):
        raise _exists(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(final.parent, lambda name: name == final.name)
    temporary, locked = _locked_folder(final)
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp's folder is for one user; readers are often others.
        for inside in [*temporary.rglob("*"), temporary]:
            if not inside.is_symlink():
                flush_to_disk(inside)
        try:
            os.rename(temporary, final)
        except OSError as error:
            if error.errno in _TAKEN:
                raise _exists(final) from error
            raise
        flush_to_disk(final.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(locked)


def remove_leftovers(folder: str | os.PathLike[str], is_ours: Callable[[str], bool]) -> None:
    """Removes the half-written folders that killed processes have left.

    Whoever writes a folder holds a lock on it, which ends with the process, in whatever container
    it ran, and is gone after a restart of the machine. A folder that is locked stays, and so does
    every folder where the file system has no locks.

    Args:
        folder: Where to look.
        is_ours: Takes the name that a folder was to have; whether it is to be removed.
    """
    for path in to_path(folder).glob(".*-*"):
        match = _TEMPORARY.fullmatch(path.name)
        if match is None or not is_ours(match["name"]):
            continue
        # No folder, or removed by somebody else meanwhile.
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if lock(descriptor, wait=False):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _locked_folder(final: Path) -> tuple[Path, int]:
    """Makes the temporary folder of another one, and locks it before it can count as left over."""
    while True:
        temporary = Path(tempfile.mkdtemp(_ENDING, f".{final.name}-", final.parent))
        try:
            descriptor = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        lock(descriptor)
        if temporary.exists():
            return temporary, descriptor
        os.close(descriptor)


def require_space(folder: str | os.PathLike[str], *sizes: int) -> None:
    """Checks that files of these sizes can be written, before somebody else's code writes them.

    HDF5 may end the process some time after a write that fails, and prints errors of its own.

    Args:
        folder: Where they will be.
        *sizes: The bytes of each file, at most.

    Raises:
        OSError: If the disk is too full (`ENOSPC`), or files may not be so large (`EFBIG`).
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and limit < max(sizes):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(folder))
    if shutil.disk_usage(folder).free < sum(sizes):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(folder))


def flush_to_disk(path: str | os.PathLike[str]) -> None:
    """Wait until a closed file's content, or the names in a folder, are on the disk."""
    if os.path.isdir(path):
        # Some file systems cannot flush a folder, and some need not.
        with contextlib.suppress(OSError):
            _fsync(path)
    else:
        _fsync(path)


def _fsync(path: str | os.PathLike[str]) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(
        f"Cannot write the folder '{path}': it exists already. A folder is never replaced, since "
        "others may be reading it. Pass another name, or remove it first."
    )
