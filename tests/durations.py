"""Writes how long each test took to `tests/durations.md`.

    python tests/durations.py                                # runs all tiers, then writes
    python tests/durations.py default=one.xml slow=two.xml   # from what `pytest --junitxml` wrote

A time is that of one worker, set-up and tear-down included; a fixture that several tests share is
in the time of the first of them.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "tests" / "durations.md"
# What the README and `.ci/run` run, and where a report goes.
TIERS = {
    "default": ["--dist", "worksteal"],
    "slow": ["--dist", "loadfile", "-m", "slow and not release"],
    "release": ["--dist", "loadfile", "-m", "release"],
}
NUM_WORKERS = 2
NUM_SLOWEST = 50


@dataclasses.dataclass(frozen=True)
class Case:
    tier: str
    file: str
    name: str
    seconds: float


def read_report(tier, path):
    """Returns the cases of a JUnit file; a failed one is an error, as its time says nothing."""
    cases = []
    for each in ElementTree.parse(path).getroot().iter("testcase"):
        file = each.get("classname").replace(".", "/") + ".py"
        if each.find("failure") is not None or each.find("error") is not None:
            sys.exit(
                f"{path}: {file}::{each.get('name')} failed. Expected a report of passing tests."
            )
        cases.append(Case(tier, file, each.get("name"), float(each.get("time"))))
    if not cases:
        sys.exit(f"{path}: no test in it. Expected a file that `pytest --junitxml` wrote.")
    return cases


def run_tier(tier, path):
    """Runs the tests of a tier, which write their times to `path`."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(NUM_WORKERS)]
    done = subprocess.run([*command, *TIERS[tier], f"--junitxml={path}"], cwd=ROOT)
    if done.returncode:
        sys.exit(f"The {tier} tier did not pass: no durations are written.")


def page(cases):
    """Returns the Markdown page: the tiers, the files and the slowest cases."""
    tiers = list(dict.fromkeys(case.tier for case in cases))
    files = collections.defaultdict(lambda: collections.defaultdict(list))
    for case in cases:
        files[case.file][case.tier].append(case.seconds)

    def seconds(tier):
        return sum(case.seconds for case in cases if case.tier == tier)

    lines = [
        "# How long the tests take",
        "",
        "Written by `python tests/durations.py`; not edited by hand. Seconds of one worker, set-up",
        "and tear-down included, "
        f"on a machine with {os.cpu_count()} cores and Python {platform.python_version()}.",
        "",
        "| tier | tests | seconds |",
        "|---|---:|---:|",
        *(
            f"| {tier} | {sum(case.tier == tier for case in cases)} | {seconds(tier):.0f} |"
            for tier in tiers
        ),
        "",
        "## By file",
        "",
        f"| file | {' | '.join(f'{tier}: tests | seconds' for tier in tiers)} |",
        f"|---|{'---:|---:|' * len(tiers)}",
    ]
    by_time = sorted(files, key=lambda file: (-sum(map(sum, files[file].values())), file))
    for file in by_time:
        cells = [f"{len(files[file][tier])} | {sum(files[file][tier]):.1f}" for tier in tiers]
        lines.append(f"| `{file}` | {' | '.join(cells)} |")
    lines += ["", "## The slowest cases", "", "| seconds | tier | case |", "|---:|---|---|"]
    slowest = sorted(cases, key=lambda case: (-case.seconds, case.file, case.name))[:NUM_SLOWEST]
    for case in slowest:
        name = case.name.replace("|", "\\|")
        lines.append(f"| {case.seconds:.1f} | {case.tier} | `{case.file}::{name}` |")
    return "\n".join([*lines, ""])


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Writes how long each test took to a page.")
    parser.add_argument(
        "reports",
        nargs="*",
        metavar="TIER=FILE",
        help="JUnit reports, one or several of a tier; without any, the tiers are run",
    )
    parser.add_argument("--output", type=pathlib.Path, default=PAGE, help="default: %(default)s")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if any("=" not in report for report in given.reports):
            parser.error("a report is TIER=FILE, such as slow=report.xml")
        reports = [report.split("=", 1) for report in given.reports]
        if not reports:
            reports = [(tier, os.path.join(folder, f"{tier}.xml")) for tier in TIERS]
            for tier, path in reports:
                run_tier(tier, path)
        cases = [case for tier, path in reports for case in read_report(tier, path)]
    given.output.write_text(page(cases), encoding="utf-8")


if __name__ == "__main__":
    main()
