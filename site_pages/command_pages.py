"""A page for each command of `keras-addnorm`, from its `--help`."""

from __future__ import annotations

import os
from unittest import mock

from keras_addnorm.cli import build_parser
from keras_addnorm.runs.commands import COMMANDS

FOLDER = "reference/commands"

_WIDTH = "96"
"""Columns of a help text, which argparse breaks where the terminal ends."""


def pages() -> dict[str, str]:
    """Make the pages.

    Returns:
        The Markdown of each page by its path on the site, the overview first.
    """
    with mock.patch.dict(os.environ, COLUMNS=_WIDTH):
        parser = build_parser()
        helps = {name: parser.commands[name].format_help() for name in COMMANDS}
        whole = parser.format_help()
    rows = "\n".join(
        f"| [`keras-addnorm {name}`]({name}.md) | {command.summary} |"
        for name, command in COMMANDS.items()
    )
    overview = f"# Command line\n\n| command | what it does |\n|---|---|\n{rows}\n\n{_code(whole)}"
    return {
        f"{FOLDER}/index.md": overview,
        **{
            f"{FOLDER}/{name}.md": f"# keras-addnorm {name}\n\n{_code(text)}"
            for name, text in helps.items()
        },
    }


def _code(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"
