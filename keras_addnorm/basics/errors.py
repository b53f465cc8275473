"""Errors whose message is for the person who gave a command, a file or a setting."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from keras_addnorm.basics.printing import printable_lines, shortened
from keras_addnorm.basics.suggestions import near_names

ERRORS_OF_CONFIGS = (ValueError, TypeError, AttributeError, LookupError, ImportError)
"""What Keras raises, anywhere inside, at the config of an object that describes none."""

_NONE_GIVEN = object()
_LONGEST = 200
_JOINTS = str.maketrans(".-", "__")


class UserError(ValueError):
    """Something that the caller asked for cannot be done, and the message says what to do instead.

    The command line prints the message alone and exits with status 2. What a file or an argument
    has brought into it is shown without control characters, and not at any length.
    """

    def renamed(self, names: Mapping[str, str]) -> UserError:
        """Returns the error with other names of the arguments; a finished text has none."""
        return self

    def __str__(self) -> str:
        return shown(super().__str__())


class SettingsError(UserError):
    """Some settings are wrong; the message names all that were found.

    Args:
        errors: One error for each wrong setting.
        file: The file that they stand in, or some of them; empty for none.
    """

    def __init__(self, errors: Iterable[UserError] = (), file: str = "") -> None:
        super().__init__()
        self.errors, self.file = tuple(errors), file

    def renamed(self, names: Mapping[str, str]) -> SettingsError:
        """Returns the error with other names of the settings."""
        return SettingsError((error.renamed(names) for error in self.errors), self.file)

    def __str__(self) -> str:
        lines = [f"{len(self.errors)} settings are wrong:"] if len(self.errors) > 1 else []
        place = [f"Settings were read from {self.file!r}."] if self.file else []
        end = "\n" if len(self.errors) > 1 else " "
        return shown(end.join(["\n  ".join([*lines, *map(str, self.errors)]), *place]))


class ArgumentError(UserError):
    """An argument is wrong: what happened, what was expected and received, and what to do.

    In the first three texts a name of an argument stands in backquotes, alone or with a value:
    "`num_beams`", "`version=None`". `renamed` turns names into those of settings or into flags,
    and a flag is written as a command has it: "--num-beams 4", "no --version". What a user gave
    belongs into the other arguments; it is shown as it is.

    Args:
        problem: What is wrong, in a sentence.
        expected: What would be right; it stands after "Expected".
        remedy: What to do, in a sentence.
        value: What was received, where the sentences say of what.
        received: What was received, in words.
        because: The error that is the reason.
        **arguments: What was received, by the names of the arguments.
    """

    def __init__(
        self,
        problem: str = "",
        expected: str = "",
        remedy: str = "",
        *,
        value: Any = _NONE_GIVEN,
        received: str = "",
        because: Exception | None = None,
        **arguments: Any,
    ) -> None:
        self.problem, self.expected, self.remedy = problem, expected, remedy
        self.received = received if value is _NONE_GIVEN else _shown(value)
        self.because, self.arguments = because, arguments
        # Keras reads it where a layer is called.
        self.args = (str(self),)

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Returns the error with other names of the arguments.

        Args:
            names: The new names by the present ones; a name of a flag begins with "--".

        Returns:
            An error of the same class.
        """

        def again(name: str, value: str) -> str:
            return f"`{names.get(name, name)}{value and f'={value}'}`"

        other = copy.copy(self)
        for field in ("problem", "expected", "remedy"):
            setattr(other, field, _with_names(getattr(self, field), again))
        if isinstance(self.because, UserError):
            other.because = self.because.renamed(names)
        other.arguments = {names.get(name, name): value for name, value in self.arguments.items()}
        other.args = (str(other),)
        return other

    def __str__(self) -> str:
        problem, expected, remedy = (
            _with_names(text, _in_words) for text in (self.problem, self.expected, self.remedy)
        )
        received = [self.received] if self.received else []
        for name, value in self.arguments.items():
            is_one = len(self.arguments) == 1 and not self.received
            is_said = is_one and f"`{name}`" in self.problem + self.expected
            is_alone = is_said and not (value is None and name.startswith("--"))
            received.append(_shown(value) if is_alone else _in_words(name, _shown(value)))
        parts = (
            problem,
            self.because and str(self.because),
            expected and f"Expected {expected}.",
            received and f"Received: {', '.join(received)}.",
            remedy,
        )
        return shown(" ".join(part.strip() for part in parts if part))


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has another type than is expected; for Python, a `TypeError` as well."""


def shown(message: str) -> str:
    """A message as a terminal may have it: without control characters, and of moderate length."""
    return shortened(printable_lines(shortened(message)))


def _shown(value: Any) -> str:
    try:
        text = repr(value[: 2 * _LONGEST] if isinstance(value, str | bytes) else value)
    except RecursionError:  # JSON is read in one call, deeper than this one may go.
        text = f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _in_words(name: str, value: str) -> str:
    """A name with its value, if any, as Python writes it or a command."""
    if not name.startswith("--"):
        return f"{name}={value}" if value else name
    if value in ("None", "False"):
        return f"no {name}" if value == "None" else f"--no-{name[2:]}"
    return f"{name} {value}" if value and value != "True" else name


def _with_names(text: str, say: Callable[[str, str], str]) -> str:
    """Replaces what stands in backquotes and is a name, or a name, "=" and its value."""
    parts = text.split("`")
    for index in range(1, len(parts) - 1, 2):
        name, _, value = parts[index].partition("=")
        is_name = name.translate(_JOINTS).isidentifier()
        parts[index] = say(name, value) if is_name else f"`{parts[index]}`"
    # A backquote that is not closed stays.
    return "".join(parts) if len(parts) % 2 else "`".join(["".join(parts[:-1]), parts[-1]])


def unknown_name(
    what: str, name: Any, known: Iterable[str], meant: Iterable[str] = ()
) -> ArgumentError:
    """Builds the error for a name that is not in a list, with the nearest ones that are.

    `what` is what the name stands for; `meant` are those that are surely meant.
    """
    known = sorted(known)
    near = list(meant) or near_names(str(name), known)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return ArgumentError(f"Unknown {what} {name!r}.{hint}", f"one of: {', '.join(known)}")
