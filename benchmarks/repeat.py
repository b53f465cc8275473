"""Measure a table of docs/performance.md again, on this machine.

python benchmarks/repeat.py                      # the tables, and the commands behind each
python benchmarks/repeat.py "Training step"      # runs those of one table, one after the other

Install with `pip install -c constraints.txt -e ".[benchmarks]"`. The versions of all contenders are
printed first.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "benchmarks" / "figures.toml"
PEERS = ("ctranslate2", "jax", "keras", "keras-hub", "tensorflow", "torch", "transformers")


def tables(figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the topics that have a table, by title."""
    return {topic["title"]: topic for topic in figures["topic"] if "columns" in topic}


def commands(topic: dict[str, Any]) -> list[str]:
    """Return the commands that measure a table: all of them, or the one that the page names."""
    return topic.get("commands", [topic["command"]])


def versions() -> str:
    """Say what is compared, and where."""
    found = []
    for name in ("keras-addnorm", *PEERS):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name}: not installed")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{', '.join(found)}. {machine}, {datetime.date.today()}."


def main() -> None:
    """List the tables, or run the commands of one."""
    known = tables(tomllib.loads(FIGURES.read_text("utf-8")))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", nargs="?", choices=known, metavar="TABLE")
    chosen = parser.parse_args().table
    if chosen is None:
        for title, topic in known.items():
            print(title, *(f"  {line}" for line in (*commands(topic), *needs(topic))), sep="\n")
        return
    print(versions(), *needs(known[chosen]), sep="\n", flush=True)
    for command in commands(known[chosen]):
        print(f"\n$ {command}", flush=True)
        subprocess.run(command, shell=True, cwd=ROOT, check=True)


def needs(topic: dict[str, Any]) -> list[str]:
    """Say what has to be there before."""
    return [f"needs {topic['needs']}"] if "needs" in topic else []


if __name__ == "__main__":
    main()
