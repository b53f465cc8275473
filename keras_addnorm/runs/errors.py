"""Errors that a user can mend: conversion of others into them, and their text."""

import contextlib
import difflib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from keras_addnorm.basics.table import UnknownNameError


class UserError(ValueError):
    """Something that the caller asked for cannot be done, and the message says what to do instead.

    The command line prints the message alone and exits with status 2.
    """


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
        raise UserError(_without_number(error)) from error
    except (ValueError, TypeError, LookupError, ImportError) as error:
        raise UserError(str(error)) from error


def _without_number(error: OSError) -> str:
    """The text of an error of the system, without the number that it has there."""
    return str(error).removeprefix(f"[Errno {error.errno}] ")


def unknown_name(what: str, name: Any, known: Iterable[str]) -> UserError:
    """Builds the error for a name that is not in a list, with the nearest ones that are.

    Args:
        what: What the name stands for, such as `"key"`.
        name: The name that was received.
        known: The names there are.

    Returns:
        The error, to be raised by the caller.
    """
    known = sorted(known)
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return UserError(f"Unknown {what} {name!r}.{hint} Expected one of: {', '.join(known)}.")


@contextlib.contextmanager
def full_disk_as_user_error(folder: str | Path) -> Iterator[None]:
    """Turns an error whose cause is a full disk into a `UserError`.

    Args:
        folder: The run directory, for the message.

    Yields:
        Nothing.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not _is_full_disk(error):
            raise
        raise UserError(
            f"The disk of {str(folder)!r} is full ({error}). The checkpoints written so far are "
            "whole: make room, and the same command goes on."
        ) from error


def _is_full_disk(error: BaseException) -> bool:
    """Tells whether a full disk is the cause, for which HDF5 and TensorFlow have own errors."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    if any(os.strerror(code) in str(error) for code in (errno.ENOSPC, errno.EDQUOT)):
        return True
    # The error of a file that cannot be closed hides the first one.
    before = error.__cause__ or error.__context__
    return before is not None and _is_full_disk(before)
