"""Errors whose message is for the person who gave a command, a file or a setting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from keras_addnorm.basics.suggestions import near_names


class UserError(ValueError):
    """Something that the caller asked for cannot be done, and the message says what to do instead.

    The command line prints the message alone and exits with status 2.
    """


class SettingsError(UserError):
    """Some settings are wrong; the message names all that were found.

    Args:
        messages: One message for each wrong setting.
    """

    def __init__(self, messages: Iterable[str]) -> None:
        self.messages = list(messages)
        first, *others = self.messages
        several = f"{len(self.messages)} settings are wrong:\n  " + "\n  ".join(self.messages)
        super().__init__(several if others else first)


def unknown_name(
    what: str, name: Any, known: Iterable[str], meant: Iterable[str] = ()
) -> UserError:
    """Builds the error for a name that is not in a list, with the nearest ones that are.

    `what` is what the name stands for; `meant` are those that are surely meant.
    """
    known = sorted(known)
    near = list(meant) or near_names(str(name), known)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return UserError(f"Unknown {what} {name!r}.{hint} Expected one of: {', '.join(known)}.")
