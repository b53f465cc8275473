"""Write docs/performance.md from the figures in benchmarks/figures.toml.

python benchmarks/performance_page.py            # after an edit of the figures

One table a topic, with its command, its machine and its date. `tests/benchmarks` compares the page
with the figures. Where a benchmark writes JSON (`--json`), its numbers are what the columns hold.
"""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "benchmarks" / "figures.toml"
PAGE = ROOT / "docs" / "performance.md"
WIDTH = 132


def render(figures: dict[str, Any]) -> str:
    """Return the page of all topics."""
    parts = [f"# {figures['title']}", *_paragraphs(figures["introduction"])]
    for topic in figures["topic"]:
        parts += _topic(topic, figures["machines"])
    return "\n\n".join(parts) + "\n"


def _topic(topic: dict[str, Any], machines: dict[str, str]) -> list[str]:
    """Return heading, source, table and notes of a topic."""
    parts = [f"{'#' * topic.get('level', 2)} {topic['title']}"]
    if "command" in topic:
        source = f"`{topic['command']}`, {machines[topic['machine']]}, {topic['date']}"
        parts.append(_wrapped(f"{source}: {topic['about']}" if "about" in topic else f"{source}."))
    if "columns" in topic:
        parts.append(_table(topic))
    return parts + _paragraphs(topic.get("notes", ""))


def _table(topic: dict[str, Any]) -> str:
    """Return the table, each number with the digits of its column."""
    columns = topic["columns"]
    digits = topic.get("digits", [0] * len(columns))
    for row in topic["rows"]:
        if len(row) != len(columns):
            raise ValueError(
                f"A row of {topic['title']!r} does not fit its columns. Expected {len(columns)} "
                f"cells. Received: {row!r}"
            )
    cells = [[_cell(*cell) for cell in zip(row, digits, strict=True)] for row in topic["rows"]]
    lines = [f"| {' | '.join(line)} |" for line in (columns, *cells)]
    return "\n".join((lines[0], "|---|" + "---:|" * (len(columns) - 1), *lines[1:]))


def _cell(value: str | float, digits: int) -> str:
    """Return a cell: text as it is, a number with its digits."""
    return value if isinstance(value, str) else f"{value:,.{digits}f}"


def _paragraphs(text: str) -> list[str]:
    return [_wrapped(part) for part in text.strip().split("\n\n") if part]


def _wrapped(text: str) -> str:
    """Break a paragraph into lines; lists and code keep theirs."""
    if text.startswith(("- ", "```", "!")):
        return text
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(render(tomllib.loads(FIGURES.read_text("utf-8"))), "utf-8")
