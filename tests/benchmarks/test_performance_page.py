"""docs/performance.md is what its figures make."""

import json
import runpy
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from keras_addnorm import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures():
    return tomllib.loads((ROOT / "benchmarks" / "figures.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def render():
    return runpy.run_path(str(ROOT / "benchmarks" / "performance_page.py"))["render"]


@pytest.fixture(scope="module")
def repeat():
    return runpy.run_path(str(ROOT / "benchmarks" / "repeat.py"))


@pytest.fixture(scope="module")
def history():
    return runpy.run_path(str(ROOT / "benchmarks" / "results_history.py"))


def test_the_page_has_the_figures(figures, render):
    """If this fails: python benchmarks/performance_page.py."""
    assert (ROOT / "docs" / "performance.md").read_text("utf-8") == render(figures)


def test_a_page_can_be_read_in_one_sitting(figures, render):
    assert len(render(figures).splitlines()) <= 125


def test_every_topic_has_its_source(figures, repeat):
    for topic in figures["topic"]:
        if "columns" in topic:
            assert topic["machine"] in figures["machines"] and topic["date"], topic["title"]
            assert topic["command"] in repeat["commands"](topic), topic["title"]
    assert [*repeat["tables"](figures)] == [t["title"] for t in figures["topic"] if "columns" in t]


def _script(command):
    """The file of a command, and the flags that it is given."""
    words = shlex.split(command)
    words = words[1:] if words[0].startswith("KERAS_BACKEND=") else words
    file = "keras_addnorm/cli.py" if words[0] == "keras-addnorm" else words[1]
    return ROOT / file, [word for word in words if word.startswith("--")]


def test_each_command_behind_a_table_has_its_script_and_flags(figures, repeat):
    for topic in repeat["tables"](figures).values():
        for command in repeat["commands"](topic):
            script, flags = _script(command)
            if script.name == "cli.py":
                assert cli.build_parser().parse_args(shlex.split(command)[1:])
                continue
            for flag in flags:
                assert f'"{flag}"' in script.read_text("utf-8"), command


@pytest.mark.release
def test_each_command_behind_a_table_starts(figures, repeat):
    for topic in repeat["tables"](figures).values():
        for command in repeat["commands"](topic):
            done = subprocess.run(
                f"{command} --help", shell=True, cwd=ROOT, capture_output=True, text=True
            )
            assert done.returncode == 0 and "usage" in done.stdout, (command, done.stderr)


def test_the_history_is_what_its_script_makes(history):
    """If this fails: python benchmarks/results_history.py."""
    records = json.loads(history["RECORDS"].read_text("utf-8"))
    assert history["PAGE"].read_text("utf-8") == history["render"](records)
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    for version, values in records.items():
        assert f"## [{version}]" in changelog
        assert set(values) <= set(history["FIGURES"])


def test_each_figure_of_the_history_stands_in_its_page(history):
    for figure in history["FIGURES"].values():
        assert float(history["cell"](figure)) > 0, figure
    gone = history["FIGURES"]["beam"]._replace(row="tiny 3 × greedy")
    with pytest.raises(SystemExit, match="tiny 3 × greedy"):
        history["cell"](gone)


def test_numbers_have_the_digits_of_their_column(render):
    topic = {
        **{"title": "T", "command": "python t.py", "machine": "m", "date": "2026-01-02"},
        **{"about": "how.", "columns": ["", "n", "×"], "digits": [0, 0, 2]},
        **{"rows": [["a", 1234567, 1.5], ["b", "–", 0.666]], "notes": "One.\n\nTwo."},
    }
    figures = {
        **{"title": "P", "introduction": "I.", "machines": {"m": "a machine"}},
        "topic": [topic],
    }
    assert render(figures) == (
        "# P\n\nI.\n\n## T\n\n`python t.py`, a machine, 2026-01-02: how.\n\n"
        "|  | n | × |\n|---|---:|---:|\n"
        "| a | 1,234,567 | 1.50 |\n| b | – | 0.67 |\n\nOne.\n\nTwo.\n"
    )
    with pytest.raises(ValueError, match=r"A row of 'T' does not fit.*Expected 3.*\['a'\]"):
        render({**figures, "topic": [{**topic, "rows": [["a"]]}]})
