"""The parser of the command line: no abbreviations, short errors, the nearest name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from keras_addnorm.basics.errors import shown
from keras_addnorm.basics.suggestions import did_you_mean
from keras_addnorm.runs.directory import RunDirectory


class RunOption(NamedTuple):
    """How a command is given its run directory, as a word or as `--run-dir`.

    Attributes:
        place: Its place among the words that are no flags.
        may_be_new: Whether the command makes the folder.
        or_else: Another argument that makes it needless, such as `"model"`.
    """

    place: int = 0
    may_be_new: bool = False
    or_else: str | None = None


class CommandParser(argparse.ArgumentParser):
    """A parser without abbreviations, whose errors are a line.

    Args:
        add_arguments: Adds its arguments, when they are first needed.
        **options: As for `argparse.ArgumentParser`.
    """

    def __init__(
        self, add_arguments: Callable[[CommandParser], None] | None = None, **options: Any
    ) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )
        self._add_arguments = add_arguments
        self._commands: dict[str, CommandParser] = {}

    def add_commands(self, commands: Mapping[str, Any]) -> None:
        """Adds a parser for each `Command`."""
        parsers = self.add_subparsers(required=True, metavar="COMMAND")
        for name, command in commands.items():
            one = parsers.add_parser(
                name,
                help=command.summary,
                description=command.description,
                usage=f"%(prog)s {command.usage}",
                add_arguments=command.add_arguments,
            )
            one.set_defaults(command=command, parser=one)
            self._commands[name] = one

    @property
    def commands(self) -> dict[str, CommandParser]:
        """The parsers of all commands by name, with their arguments."""
        return {name: one._complete() for name, one in self._commands.items()}

    def _complete(self) -> CommandParser:
        add_arguments, self._add_arguments = self._add_arguments, None
        if add_arguments is not None:
            add_arguments(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses what it knows, as `argparse.ArgumentParser` does."""
        self._complete()
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses a command line; an unknown flag is named with the nearest, and who has it."""
        words = list(sys.argv[1:] if args is None else args)
        options, unknown = self.parse_known_args(words, namespace)
        if flags := [word for word in unknown if word.startswith("-")]:
            options.parser.error(options.parser.refusal(flags[0], self.commands))
        run: RunOption | None = getattr(options, "run_option", None)
        if run is not None and _is_missing(run, options):
            found = options.parser.word_of_run(run, options, unknown)
            return self.parse_args(_with_run_dir(words, found), namespace)
        if unknown:
            options.parser.error(f"received {unknown[0]!r}, for which there is no use")
        return options

    def word_of_run(
        self, run: RunOption, options: argparse.Namespace, unknown: Iterable[str]
    ) -> str:
        """Returns the word that names the run; ends the process where there is none."""
        words = [*self._words(options), *unknown]
        if len(words) <= run.place:
            other = "" if run.or_else is None else f" or --{run.or_else}"
            self.error(f"the following arguments are required: RUN_DIR{other}")
        word = words[run.place]
        # A text to train on is no place for a run.
        if run.may_be_new and word and not RunDirectory(word).can_hold_a_run():
            self.error(
                f"{word!r} is there already, and is no run directory. Expected one, or the name of "
                "a new folder for it"
            )
        return word

    def _words(self, options: argparse.Namespace) -> list[str]:
        """What was given for the arguments that are no flags."""
        found: list[str] = []
        for action in self._get_positional_actions():
            value = getattr(options, action.dest, None) or []
            found += map(str, value if isinstance(value, list) else [value])
        return found

    def refusal(self, unknown: str, commands: Mapping[str, Any]) -> str:
        """Returns the reason why a flag is refused."""
        flag = unknown.partition("=")[0]
        name = flag.lstrip("-").replace("_", "-")
        meant = [
            f"--{own} ({one.help})"
            for own, one in (self.get_default("flags") or {}).items()
            if name in (own, one.flag, *one.known_as)
        ]
        if meant:
            return f"it has no {flag}. Did you mean {' or '.join(meant)}?"
        others = [name for name, other in commands.items() if flag in other._option_string_actions]
        if others:
            listed = " and ".join(filter(None, (", ".join(others[:-1]), others[-1])))
            return f"it has no {flag}, which is a flag of {listed}"
        return f"it has no {flag}.{did_you_mean([flag], self._option_string_actions)}".rstrip(".")

    def error(self, message: str) -> NoReturn:
        """Ends the process with a line and the status 2."""
        end = "" if message.endswith("?") else "."
        self.exit(2, f"{self.prog}: {shown(message)}{end} See {self.prog} --help.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuses a name that is none of the choices, with the nearest."""
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action,
                f"there is no {value!r}.{did_you_mean([value], action.choices)} Expected one of "
                f"{', '.join(action.choices)}",
            )


def _is_missing(run: RunOption, options: argparse.Namespace) -> bool:
    found = (getattr(options, name) for name in ("run_dir", run.or_else) if name is not None)
    return not any(found)


def _with_run_dir(words: Sequence[str], run: str) -> list[str]:
    """Returns a command line in which the run has its flag."""
    command, *others = words
    # One of equal words is as good as another.
    others.remove(run)
    return [command, "--run-dir", run, *others]
