"""Errors that a user can mend: how others become one, and the words for an unknown name."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class UserError(ValueError):
    """Something that the caller asked for cannot be done, and the message says what to do instead.

    The command line prints the message alone and exits with status 2.
    """


@contextlib.contextmanager
def as_user_errors() -> Iterator[None]:
    """Turns errors of the rooms below about what the user gave into `UserError`.

    Yields:
        Nothing.
    """
    try:
        yield
    except UserError:
        raise
    except (ValueError, TypeError, LookupError, OSError, ImportError) as error:
        raise UserError(str(error)) from error


def unknown_name(what: str, name: str, known: Iterable[str]) -> UserError:
    """Builds the error for a name that is not in a list, with the nearest ones that are.

    Args:
        what: What the name stands for, such as `"key"`.
        name: The name that was received.
        known: The names there are.

    Returns:
        The error, to be raised by the caller.
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return UserError(f"Unknown {what} {name!r}.{hint} Expected one of: {', '.join(known)}.")
