"""docs/performance.md is what its figures make."""

import runpy
import shlex
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures():
    return tomllib.loads((ROOT / "benchmarks" / "figures.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def render():
    return runpy.run_path(str(ROOT / "benchmarks" / "performance_page.py"))["render"]


def test_the_page_has_the_figures(figures, render):
    """If this fails: python benchmarks/performance_page.py."""
    assert (ROOT / "docs" / "performance.md").read_text("utf-8") == render(figures)


def test_a_page_can_be_read_in_one_sitting(figures, render):
    assert len(render(figures).splitlines()) <= 125


def test_every_topic_has_its_source(figures):
    for topic in figures["topic"]:
        if "columns" in topic:
            assert topic["machine"] in figures["machines"] and topic["date"], topic["title"]
            _, script, *_ = shlex.split(topic["command"])
            assert (ROOT / script).exists(), topic["title"]


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
