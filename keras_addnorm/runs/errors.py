"""Errors that a user can mend: conversion of others into them, and their text."""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from keras_addnorm.basics.errors import UserError, unknown_name
from keras_addnorm.basics.table import UnknownNameError


@contextlib.contextmanager
def as_user_errors() -> Iterator[None]:
    """Turns errors about what the user gave into `UserError`.

    Yields:
        Nothing.
    """
    try:
        yield
    except (UserError, BrokenPipeError):
        raise
    except UnknownNameError as error:
        raise unknown_name(error.kind, error.received, error.names) from error
    except OSError as error:
        is_known = error.errno in _OF_THE_DISK or _is_nowhere(error)
        said = _sentence(error) if is_known else None
        raise UserError(said or _without_number(error)) from error
    except (ValueError, TypeError, LookupError, ImportError, FloatingPointError) as error:
        raise UserError(str(error)) from error


def _without_number(error: OSError) -> str:
    """The text of an error of the system, without the number that it has there."""
    return str(error).removeprefix(f"[Errno {error.errno}] ")


# Errors of the system that the work of a command can meet at any file: what is said of the place,
# and what helps.
_FULL = ("The disk of {place} is full", "make room")
_FORBIDDEN = ("{place} does not let this user read and write", "change its permissions")
_GONE = ("Something in {place} is gone, or is no folder any more", "put it back")
_NO_MEMORY = (
    "There is not enough memory",
    "make the model, its batches or its searches smaller, or take a machine with more",
)
_TOO_MANY = ("This process has too many files open", "raise its limit (ulimit -n)")
_OF_THE_DISK = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: (
        "A file in {place} would become larger than it may be",
        "raise the limit (ulimit -f unlimited), or choose a disk that takes larger files",
    ),
    errno.EROFS: ("The disk of {place} can only be read", "make it writable"),
    errno.EIO: ("The disk of {place} has an error", "look into the log of the system (dmesg)"),
    errno.EMFILE: _TOO_MANY,
    errno.ENFILE: _TOO_MANY,
    errno.ENOMEM: _NO_MEMORY,
}
_OF_A_FILE = {
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.ENOENT: _GONE,
    errno.EEXIST: _GONE,
    errno.ENOTDIR: _GONE,
    errno.ESTALE: _GONE,
    errno.EISDIR: ("{place} is a folder, where a file is expected", "remove or rename it"),
    errno.ESPIPE: ("{place} is a pipe, where a file is expected", "remove it"),
    errno.ELOOP: ("{place} is a link that leads back to itself", "remove it"),
    errno.ENAMETOOLONG: ("A name is too long for the disk, in {place}", "choose a shorter one"),
}
# What TensorFlow, JAX and torch raise where Python has a `MemoryError`.
_OUT_OF_MEMORY = re.compile(r"ResourceExhausted|OutOfMemory|RESOURCE_EXHAUSTED")
_NUMBER_IN_HDF5 = re.compile(r"errno = (\d+)")


@contextlib.contextmanager
def system_errors_as_user_errors(folder: str | Path | None = None) -> Iterator[None]:
    """Turns errors of the disk, and of files that cannot be opened, into a `UserError`.

    Of a training, `folder` is its run directory.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError | BrokenPipeError):
            raise
        said = _sentence(error, folder)
        if said is None:
            raise
        raise UserError(said) from error


def is_of_the_machine(error: UserError) -> bool:
    """Tells an error of disk or memory, behind which the same command goes on, from a refusal."""
    return error.__cause__ is not None and _number_of(error.__cause__) in _OF_THE_DISK


def _sentence(error: Exception, folder: str | Path | None = None) -> str | None:
    """What is to be said of an error whose cause is the system; `None` for any other."""
    if _is_nowhere(error):
        return (
            "The current folder is gone: it was removed, or replaced by another one of its name. "
            "Change into a folder that is there (cd), and give the command again."
        )
    found = _system_error(error, folder)
    if found is None:
        return None
    what, remedy = found
    place = repr(str(folder or _file_of(error) or "the output"))
    said = " ".join(str(error).split())
    end = (
        f"Nothing half-written is left: {remedy}, and give the command again."
        if folder is None
        else f"The checkpoints written so far are whole: {remedy}, and the same command goes on."
    )
    return f"{what.format(place=place)} ({said:.500}). {end}"


def _is_nowhere(error: Exception) -> bool:
    """Whether the reason for an error is that the process is in a folder that was removed."""
    if _number_of(error) != errno.ENOENT:
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _system_error(error: BaseException, folder: str | Path | None) -> tuple[str, str] | None:
    """What has happened and what to do, if the cause of an error is the system."""
    code = _number_of(error)
    if code in _OF_THE_DISK:
        return _OF_THE_DISK[code]
    # A file that is not there may be a fault of the program. One of the run is not.
    is_of_place = _file_of(error) is not None if folder is None else str(folder) in str(error)
    if code in _OF_A_FILE and is_of_place:
        return _OF_A_FILE[code]
    # The error of a file that cannot be closed hides the first one.
    before = error.__cause__ or error.__context__
    while before is not None:
        if (code := _number_of(before)) in _OF_THE_DISK:
            return _OF_THE_DISK[code]
        before = before.__cause__ or before.__context__
    return None


def _number_of(error: BaseException) -> int:
    """The system's number of an error, for which HDF5 and TensorFlow have own errors; 0 if none."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    if match := _NUMBER_IN_HDF5.search(text):
        return int(match[1])
    is_of_tensorflow = type(error).__module__.startswith("tensorflow")
    known = {**_OF_THE_DISK, **(_OF_A_FILE if is_of_tensorflow else {})}
    if code := next((code for code in known if os.strerror(code) in text), 0):
        return code
    # After these: of a full disk, TensorFlow says that a resource is exhausted, too.
    is_memory = isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(f"{type(error)} {text}")
    return errno.ENOMEM if is_memory else 0


def _file_of(error: BaseException) -> str | None:
    name = error.filename if isinstance(error, OSError) else None
    return None if name is None else os.fsdecode(name)
