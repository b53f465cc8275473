"""What comes from outside is shown without control characters, and not at any length."""

import argparse
import ast
from pathlib import Path

import pytest

from keras_addnorm import cli, runs
from keras_addnorm.basics.errors import ArgumentError, SettingsError, UserError
from keras_addnorm.basics.fields import from_table
from keras_addnorm.basics.printing import printable, printable_lines, shortened
from keras_addnorm.basics.suggestions import near_names
from keras_addnorm.runs.command_parser import CommandParser
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import show

ESCAPES = {
    "\x1b[2J": r"\x1b[2J",
    "\x07\x7f\x9b": r"\x07\x7f\x9b",
    "\u202eabc\u2066": r"\u202eabc\u2066",
    "\u2028\udc80": r"\u2028\udc80",
    "ü שלום \u200f 中": "ü שלום \u200f 中",
}


@pytest.mark.parametrize("text", ESCAPES)
def test_control_characters_are_escaped(text, capsys):
    expected = ESCAPES[text]
    assert printable(text) == expected
    assert printable(f"a\t{text}\n") == rf"a\t{expected}\n"
    assert printable_lines(f"a\t{text}\nb") == f"a\t{expected}\nb"
    assert str(UserError(f"{text}\nb")) == f"{expected}\nb"
    assert str(ArgumentError("p", text)) == f"p Expected {expected}."
    show(f"a\n{text}")
    assert capsys.readouterr().out == f"a\n{expected}\n"


def test_a_message_of_any_length_has_its_beginning_and_its_end():
    text = f"begin {'x' * 10**6} end"
    for message in (shortened(text), str(UserError(text)), str(ArgumentError(text))):
        assert len(message) <= 2000
        assert message.startswith("begin x") and message.endswith("x end")
        assert "[... 998,110" in message
    assert shortened("x" * 2000) == "x" * 2000
    assert len(str(UserError("\x1b" * 10**6))) <= 2000
    assert len(str(ArgumentError("p", value="x" * 10**6))) < 300
    assert len(str(ArgumentError("p", value=["x" * 10**6]))) < 300


def test_the_errors_of_a_file_that_is_none_of_settings_come_to_an_end():
    with pytest.raises(SettingsError) as error:
        from_table(RunConfig, {f"{number} {'x' * 1000}": 1 for number in range(10_000)})
    assert len(error.value.errors) == 20 and len(str(error.value)) <= 2000
    assert near_names("pre_ln" * 10**6, ["pre_ln"]) == []


def test_the_command_escapes_what_it_repeats(tmp_path, capsys):
    parser = CommandParser(prog="x")
    parser.set_defaults(parser=parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--\x1b[2J"], argparse.Namespace())
    assert r"it has no --\x1b[2J" in capsys.readouterr().err
    path = tmp_path / "\x1b[2J.tsv"
    assert cli.main(["data", str(path), "--source", "en", "--target", "de"]) == 2
    path.write_text("a\x1b[2Jx\tb\x9b\n\t\n")
    assert cli.main(["data", str(path), "--source", "en", "--target", "de"]) == 0
    for said in capsys.readouterr():
        assert said.replace("\n", "").isprintable()
        assert not said or r"\x1b[2J.tsv" in said


def test_commands_print_by_one_function():
    """A translation is content; the other two write JSON for a process of ours."""
    allowed = {"terminal.py", "commands/translate.py", "serve_once.py", "worker_processes.py"}
    folder = Path(runs.__file__).parent
    found = {
        str(file.relative_to(folder))
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and node.id == "print"
    }
    assert found == allowed, "print with `show` of runs/terminal.py"


@pytest.mark.parametrize("flag", ["--alignments", "--teacher", "--source", "--data", "--split"])
def test_an_empty_value_of_a_flag_is_refused(flag, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "runs/x", "--data", "y", flag, ""])
    assert f"argument {flag}: expected a name or a path, received ''" in capsys.readouterr().err
