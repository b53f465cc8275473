"""Write docs/results_history.md: main figures of the pages by version.

python benchmarks/results_history.py                    # after an edit, or of a new figure
python benchmarks/results_history.py --record 0.2.0     # at a release: what the pages say now

A figure is a cell of a table in a page, so that it is written down once. What the pages said at a
release is kept in results_history.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "results_history.json"
PAGE = ROOT / "docs" / "results_history.md"
_PERFORMANCE, _RESULTS = "docs/performance.md", "docs/results.md"


class Figure(NamedTuple):
    """A cell of a page: its heading, the row's first cell, and the column from 0."""

    what: str
    page: str
    heading: str
    row: str
    column: int


FIGURES = {
    "multi30k_en_de": Figure(
        "BLEU of the English → German recipe on Multi30k",
        *(_RESULTS, "Results", "English → German, the recipe", 2),
    ),
    "multi30k_de_en": Figure(
        "BLEU of the German → English recipe",
        *(_RESULTS, "Results", "German → English, the recipe", 2),
    ),
    "beam": Figure(
        "Time of a beam search of 4, *base*, one text, XLA, over CTranslate2's",
        *(_PERFORMANCE, "Decoding", "base 1 × beam 4", 5),
    ),
    "beam_without_xla": Figure(
        "the same without XLA", *(_PERFORMANCE, "Decoding", "base 1 × beam 4", 6)
    ),
    "sentences": Figure(
        "Time of 320 real sentences in batches of 32, greedy, XLA, over CTranslate2's",
        *(_PERFORMANCE, "Real sentences", "32 × greedy", 4),
    ),
    "opus": Figure(
        "Speed of OPUS-MT's size in batches of 32, beam of 4, over `transformers`'",
        *(_PERFORMANCE, "Pretrained models", "32 × beam 4", 5),
    ),
    "step_torch": Figure(
        "Time of torch's training step over ours, *base*, TensorFlow with XLA",
        *(_PERFORMANCE, "Training step", "base, TensorFlow, XLA", 5),
    ),
    "step_keras_hub": Figure(
        "Time of keras-hub's step over ours",
        *(_PERFORMANCE, "Training step", "base, TensorFlow, XLA", 4),
    ),
    "epochs": Figure(
        "Tokens a second of whole epochs over keras-hub's",
        *(_PERFORMANCE, "Real epochs", "keras-hub", 2),
    ),
    "start_up": Figure(
        "Time to the first training step, 6+6 layers, XLA, over plain Keras layers'",
        *(_PERFORMANCE, "Start-up", "6+6 layers", 3),
    ),
    "add_norm": Figure(
        "Time of Add & Norm with its gradients, XLA, over torch's",
        *(_PERFORMANCE, "Add & Norm", "**keras-addnorm, XLA**", 5),
    ),
    "serving": Figure(
        "Requests a second of `serving_default`, 64 clients, batched",
        *(_PERFORMANCE, "Serving", "`serving_default`, 64", 1),
    ),
}


def cell(figure: Figure) -> str:
    """Return what a page says now."""
    heading = ""
    for line in (ROOT / figure.page).read_text("utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        cells = [one.strip() for one in line.strip("|").split("|")]
        if heading == figure.heading and line.startswith("|") and cells[0] == figure.row:
            return cells[figure.column].strip("*")
    raise SystemExit(f"{figure.page} has no row {figure.row!r} below {figure.heading!r} any more.")


def render(records: dict[str, dict[str, str]]) -> str:
    """Return the page: a row a figure, a column a version."""
    table = [["", *records], ["---", *("---:" for _ in records)]]
    for name, figure in FIGURES.items():
        table.append([figure.what, *(values.get(name, "") for values in records.values())])
    rows = "\n".join(f"| {' | '.join(row)} |" for row in table)
    return f"""\
# Results by version

What the pages [results](results.md) and [performance](performance.md) said when each version was
made. They are ratios where machines differ; how each was measured stands in those pages, and all
that was measured between versions in the [log](../benchmarks/HISTORY.md).
`python benchmarks/results_history.py` writes this page, and `--record VERSION` adds a column.

{rows}
"""


def main() -> None:
    """Record a version if asked to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="VERSION", help="add what the pages say now")
    version = parser.parse_args().record
    records = json.loads(RECORDS.read_text("utf-8")) if RECORDS.exists() else {}
    if version:
        records[version] = {name: cell(figure) for name, figure in FIGURES.items()}
        RECORDS.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(render(records), "utf-8")


if __name__ == "__main__":
    main()
