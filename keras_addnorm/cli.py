"""The command `keras-addnorm`: reads the command line and runs a command of `runs.commands`."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator, Sequence

from keras_addnorm import __version__
from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs.command_parser import CommandParser
from keras_addnorm.runs.commands import COMMANDS, Command
from keras_addnorm.runs.errors import system_errors_as_user_errors
from keras_addnorm.runs.process_startup import garbage_collection_paused
from keras_addnorm.runs.setting_flags import flags_by_name
from keras_addnorm.runs.terminal import StatusLine, show

_DESCRIPTION = """\
Trains, evaluates, uses and exports encoder-decoder Transformers for translation.

Start here:
  keras-addnorm demo                      the whole job on a built-in data set, in minutes

Then, with your own sentence pairs in a folder (train.en, train.de, val.en, val.de, test.en, ...):
  keras-addnorm train runs/mine --data corpus --source en --target de --preset tiny
  keras-addnorm evaluate runs/mine --split test
  keras-addnorm translate runs/mine "A dog runs through the snow."
  keras-addnorm export runs/mine saved_models/mine
  keras-addnorm serve saved_models/mine
  keras-addnorm inspect runs/mine --html report.html
  keras-addnorm explain runs/mine --html page.html
  keras-addnorm prune runs/mine
  keras-addnorm distill runs/small --teacher runs/mine --data corpus
  keras-addnorm zoo list

Every command has its own --help with examples.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The command line without the program's name; by default that of the process.

    Returns:
        The exit status: 0, or 2 if the user has to change something.
    """
    options = argparse.Namespace()
    _open_closed_streams()
    try:
        try:
            with system_errors_as_user_errors():
                options = build_parser().parse_args(arguments)
                command: Command = options.command
                checked = command.check(options)
            if arguments is None:
                _show_each_line_at_once()
                with garbage_collection_paused(), StatusLine.saying("Starting ..."):
                    command.prepare()
            heard = _sigterm_stops() if command.resumes(options) else contextlib.nullcontext()
            with heard, system_errors_as_user_errors():
                command.run(options, checked)
        finally:
            sys.stdout.flush()
    except UserError as error:
        show(f"keras-addnorm: {error.renamed(flags_by_name(options))}", sys.stderr)
        return 2
    except UnicodeEncodeError as error:
        if error.encoding.lower() in ("utf-8", "utf8"):
            raise
        character = error.object[error.start]
        show(
            f"keras-addnorm: The standard output is in {error.encoding!r}, which has no "
            f"{character!a}. Set PYTHONIOENCODING=utf-8, and give the command again.",
            sys.stderr,
        )
        return 2
    except KeyboardInterrupt as stop:
        if hasattr(options, "command") and options.command.resumes(options):
            said = "Stopped. What is written is whole, and the same command goes on from there."
            print(f"\n{said}", file=sys.stderr)
        return getattr(stop, "exit_status", 130)
    except BrokenPipeError:
        # Whoever reads has had enough. What Python still holds back would be an error at the end.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return 0


def _open_closed_streams() -> None:
    """Gives a process whose standard streams are closed (`>&-`) others that lead nowhere.

    The next file to be opened would have the number of one, and get what libraries print.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            stream = os.fdopen(descriptor, mode, encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


class _Terminated(KeyboardInterrupt):
    """SIGTERM, by which schedulers of clusters ask a process to end."""

    exit_status = 128 + signal.SIGTERM


@contextlib.contextmanager
def _sigterm_stops() -> Iterator[None]:
    """Lets SIGTERM end a block as Ctrl-C does; not if ignored, nor outside the main thread."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(number: int, frame: types.FrameType | None) -> None:
        raise _Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _show_each_line_at_once() -> None:
    """Lets whoever reads a pipe see what a terminal would show, when it is printed."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def build_parser() -> CommandParser:
    """Builds the parser of the whole command line.

    Returns:
        The parser. What it parses has the chosen `Command` as `command`.
    """
    parser = CommandParser(prog="keras-addnorm", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_commands(COMMANDS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
