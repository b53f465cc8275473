"""The tries of `attacks.py` on arguments: those of functions and classes, and flags of commands."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from attacks import Try, said

_TESTS = Path(__file__).parents[1] / "tests"
# A value of another kind, out of range, a path that leads out, what a terminal follows.
VALUES = (
    *("", " ", "0", "-1", "2.5", "1e400", "1e-60", "nan", "9" * 30, "x", "true", "[1]", "{"),
    *("x" * 100_000, "\x1b[2J", "\udcff", "../../x", "/dev/zero", "en", "..", "~"),
)
# They begin long work, or wait for ever, if nothing is wrong: their arguments are checked alone.
_ONLY_CHECKED = ("demo", "serve")


def arguments(smoke: bool) -> Iterator[Try]:
    """Every public function and class with wrong values, and every flag of every command."""
    # The repository's own tables, which the tests hold complete.
    sys.path[:0] = [str(_TESTS / "calls"), str(_TESTS)]
    calls = importlib.import_module("test_wrong_calls")
    from keras_addnorm.cli import build_parser

    for name in sorted(calls.CALLS)[:: 40 if smoke else 1]:
        # Models are built and called.
        attack = functools.partial(_call, calls, name)
        yield Try(
            "wrong values of functions", name, attack, seconds=200, megabytes=3000, patience=600
        )
    for command in build_parser().commands:
        for action in flags_of(command)[:: 20 if smoke else 1]:
            attack = functools.partial(answer_of, command, action)
            name = (action.option_strings or [action.dest])[-1]
            # What a command needs is imported, for all values of its flag.
            yield Try(f"wrong values of {command}'s flags", name, attack, seconds=40, megabytes=900)


def _call(calls, name: str, folder: Path) -> str:
    call = calls.CALLS[name]
    with call.stopped():
        found = [*calls.outcomes(call)]
    faults = [
        f"{parameter}={value!r:.60}: {what}"
        for parameter, value, what in found
        if what != "refused"
    ]
    return f"raw: {name}, {'; '.join(faults)}" if faults else f"said: {len(found)} values refused"


def flags_of(command: str) -> list[argparse.Action]:
    """The arguments of a command that take a value."""
    from keras_addnorm.cli import build_parser

    return [action for action in build_parser().commands[command]._actions if action.nargs != 0]


def answer_of(command: str, action: argparse.Action, folder: Path) -> str:
    """The worst of what a command answers to wrong values of an argument; works in `folder`."""
    # So deep that what leads out stays in the folder.
    place = folder / "a" / "b" / "c"
    place.mkdir(parents=True)
    os.chdir(place)
    answers = [_command_line(command, action, value) for value in VALUES]
    left = sorted(path.name for path in folder.iterdir() if path.name != "a")
    if left:
        return f"raw: {', '.join(left)} was written outside of the folder"
    return max(answers, key=lambda answer: (not answer.startswith("said: "), len(answer)))


def _command_line(command: str, action: argparse.Action, value: str) -> str:
    """Runs a command with a value, where nothing is there to work on; judges what it prints."""
    words = [command]
    if action.option_strings:
        words.append(f"{action.option_strings[-1]}={value}")
    else:
        words += ["--", value]
    if command == "train" and "--data" not in action.option_strings:
        words += ["--data", "nothing", "--source", "en", "--target", "de", "--run-dir", "run"]
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        try:
            status = _run(words)
        except SystemExit as stop:
            status = stop.code
        except BaseException as error:
            return f"raw: {words[1]:.80}: {type(error).__name__}: {error}"[:300]
    if status not in (0, 2):
        return f"raw: {words[1]:.80}: status {status}"
    # A help, or a warning and an error.
    return said(printed.getvalue()[-2000:])


def _run(words: list[str]) -> int:
    from keras_addnorm import cli
    from keras_addnorm.basics.errors import UserError
    from keras_addnorm.runs.errors import system_errors_as_user_errors

    if words[0] not in _ONLY_CHECKED:
        return cli.main(words)
    try:
        options = cli.build_parser().parse_args(words)
        with system_errors_as_user_errors():
            options.command.check(options)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0
