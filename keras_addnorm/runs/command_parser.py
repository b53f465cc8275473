"""The parser of the command line: no abbreviations, short errors, the nearest flag."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, NoReturn

from keras_addnorm.basics.suggestions import did_you_mean


class CommandParser(argparse.ArgumentParser):
    """A parser without abbreviations, whose errors are a line.

    Args:
        **options: As for `argparse.ArgumentParser`.

    Attributes:
        commands: The parsers of the commands by name, once there are some.
    """

    commands: Mapping[str, Any] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses a command line; an unknown flag is named with the nearest, and who has it."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            options.parser.error(options.parser.refusal(unknown[0], self.commands))
        return options

    def refusal(self, unknown: str, commands: Mapping[str, Any]) -> str:
        """Returns the reason why something on the command line is refused."""
        flag = unknown.partition("=")[0]
        if not flag.startswith("-"):
            return f"received {unknown!r}, for which there is no use"
        others = [name for name, other in commands.items() if flag in other._option_string_actions]
        if others:
            listed = " and ".join(filter(None, (", ".join(others[:-1]), others[-1])))
            return f"it has no {flag}, which is a flag of {listed}"
        return f"it has no {flag}.{did_you_mean([flag], self._option_string_actions)}".rstrip(".")

    def error(self, message: str) -> NoReturn:
        """Ends the process with a line and the status 2."""
        end = "" if message.endswith("?") else "."
        self.exit(2, f"{self.prog}: {message}{end} See {self.prog} --help.\n")
