"""Fourteen claims about Add & Norm, tried on real runs and written to pages with tables and plots.

python examples/why_add_and_norm.py                 # all claims, about two hours on two cores
python examples/why_add_and_norm.py --claims 1,7    # some of them
python examples/why_add_and_norm.py --quick         # only tries that it runs, in minutes

Whatever has been measured is kept in `--records`, so that a second run resumes where the first one
stopped, and the pages can be written again without training. Keras runs on JAX where it is
installed, because that compiles deep models in less than half the time; set KERAS_BACKEND for
another backend.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from pathlib import Path

if importlib.util.find_spec("jax"):
    os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from claims import (
    batches,
    concatenating,
    copying,
    depth,
    drift,
    generalisation,
    highway,
    hundreds,
    inputs,
    retention,
    smoothness,
    swamping,
    variance,
    warmup,
)
from claims.images import Images
from claims.lab import FULL, QUICK, Lab
from claims.page import write_pages
from claims.records import Records

CLAIMS = {
    1: depth.section,
    2: highway.section,
    3: copying.section,
    4: swamping.section,
    5: variance.section,
    6: batches.section,
    7: warmup.section,
    8: concatenating.section,
    9: smoothness.section,
    10: drift.section,
    11: retention.section,
    12: generalisation.section,
    13: hundreds.section,
    14: inputs.section,
}


def main(claims: list[int], page: Path, records: Path, *, quick: bool = False) -> Path:
    """Measure what is not on record yet, and write the page.

    Args:
        claims: The numbers of the claims.
        page: The page of all verdicts; beside it go the pages of the claims, `why_add.md` and
            `why_norm.md`, and the folder `images`.
        records: The file with what was measured.
        quick: Whether only to try that it runs: the numbers then mean nothing.

    Returns:
        The page.
    """
    lab = Lab(QUICK if quick else FULL, Records(records))
    images = Images(page)
    sections = {}
    for claim in claims:
        sections[claim] = CLAIMS[claim](lab, images)
        print(f"{claim}. {sections[claim].title}: {sections[claim].verdict.value}", flush=True)
    write_pages(page, lab.scale, sections)
    print(f"{page}")
    return page


def _numbers(text: str) -> list[int]:
    chosen = sorted({int(part) for part in text.split(",")})
    if unknown := set(chosen) - set(CLAIMS):
        raise argparse.ArgumentTypeError(
            f"there are no claims {sorted(unknown)}; expected numbers among {list(CLAIMS)}"
        )
    return chosen


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only try that it runs")
    parser.add_argument("--claims", type=_numbers, default=list(CLAIMS), help="such as 1,2,7")
    parser.add_argument("--page", type=Path, help="default: docs/why_add_and_norm.md")
    parser.add_argument("--records", type=Path, help="default: runs/why_add_and_norm.jsonl")
    arguments = parser.parse_args()
    # A trial must not write over the real page.
    folder = Path("runs/quick") if arguments.quick else Path("docs")
    main(
        arguments.claims,
        arguments.page or folder / "why_add_and_norm.md",
        arguments.records or Path("runs", f"why_add_and_norm{'_quick' * arguments.quick}.jsonl"),
        quick=arguments.quick,
    )
