"""Two checkouts of this project in turn: searches of their exports, and a training step of each.

Each checkout makes its exports in a process of its own, from the same random weights or the same
trained run. One process then loads both files and calls them in turn: exports need no code of ours.
Training steps run in two processes that wait for each other. The ratio of each round is taken, and
the median of the ratios is printed, since neighbours on a machine slow both contenders of a round.

    git worktree add ../before v0.1.0
    python benchmarks/compare_checkouts.py ../before . --run-dir runs/demo-en-de
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import decoding
import measure
import peers
import tensorflow as tf

OLD, NEW = "old", "new"

EXPORT_CELLS = """
import sys
import keras, decoding, peers
size = {**decoding.SIZES, **decoding.SMOKE}[sys.argv[1]]
keras.utils.set_random_seed(1)
model = peers.never_ending(peers.ours(size, max_length=decoding.STEPS))
decoding.export_and_load(model, decoding.make_tokenizer(size.vocabulary_size), sys.argv[2])
"""

EXPORT_RUN = """
import sys
from pathlib import Path
import translation as script
from keras_addnorm.runs import RunDirectory
run = script.load_run(RunDirectory(Path(sys.argv[1])))
script.export_saved_model(
    run.model, run.tokenizers, Path(sys.argv[2]), batch_buckets=(1, 32),
    strategies={script.signature_name(beams): script.strategy(beams) for beams in (1, 4)},
)
"""

SENTENCES = """
import sys
from pathlib import Path
import translation as script
from keras_addnorm.runs import RunDirectory
run = script.load_run(RunDirectory(Path(sys.argv[1])))
texts = script.sentences(run, sys.argv[2], int(sys.argv[3]))
Path(sys.argv[4]).write_text("\\n".join(texts), encoding="utf-8")
"""

TRAIN = """
import sys, time
import keras, measure, training_step
keras.utils.set_random_seed(1)
training_step.import_libraries((training_step.peers.OURS,), int(sys.argv[3]))
job = training_step.JOBS[sys.argv[1]]
step = training_step.make_step(training_step.peers.OURS, job, sys.argv[2] == "xla")
for _ in range(3):
    loss = step()
print("ready", loss, flush=True)
for _ in sys.stdin:
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)
"""


@dataclasses.dataclass(frozen=True)
class Checkout:
    """A folder with the project as it was or as it is."""

    folder: Path

    def command(self, code: str, *arguments: str | Path) -> dict[str, Any]:
        """The arguments of `subprocess` that run some code with this checkout's modules."""
        paths = os.pathsep.join(str(self.folder / name) for name in ("", "benchmarks"))
        return {
            "args": [sys.executable, "-c", code, *map(str, arguments)],
            "env": {**os.environ, "PYTHONPATH": paths},
            "cwd": self.folder,
            "text": True,
        }

    def run(self, code: str, *arguments: str | Path) -> None:
        subprocess.run(**self.command(code, *arguments), check=True, stdout=subprocess.DEVNULL)


def ratios(timings: dict[str, measure.Timing]) -> tuple[float, float]:
    """The medians of new / old over the rounds, of wall and of processor time."""
    old, new = timings[OLD], timings[NEW]
    wall = measure.median_ratio(new.wall_ms, old.wall_ms)
    return wall, measure.median_ratio(new.cpu_ms, old.cpu_ms)


def size_of(folder: Path) -> int:
    """Bytes of all files of an export."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def exports(
    checkouts: dict[str, Checkout], code: str, subject: str, folder: Path
) -> tuple[dict[str, Any], dict[str, int]]:
    """What each checkout exports of one subject, loaded, and its bytes."""
    loaded, sizes = {}, {}
    for name, checkout in checkouts.items():
        checkout.run(code, subject, folder / name)
        (version,) = (path for path in (folder / name).iterdir() if path.name.isdecimal())
        loaded[name], sizes[name] = tf.saved_model.load(str(version)), size_of(version)
    return loaded, sizes


def time_batches(
    loaded: dict[str, Any], signature: str, batches: list[list[str]], rounds: int
) -> dict[str, measure.Timing]:
    """The time of all batches, in turn; fails if the translations differ."""

    def translate(model: Any) -> list[str]:
        found = [decoding.ours(model.signatures[signature], batch)[0] for batch in batches]
        return [text for texts in found for text in texts]

    contenders = {name: functools.partial(translate, model) for name, model in loaded.items()}
    if translate(loaded[OLD]) != translate(loaded[NEW]):
        print(f"  {signature}: TRANSLATIONS DIFFER", flush=True)
    return measure.in_turn(contenders, rounds=rounds, warm_up=2)


def decoding_cells(
    checkouts: dict[str, Checkout], rounds: int, sizes: dict[str, peers.Size], wanted: str
) -> Iterator[tuple[str, dict[str, measure.Timing]]]:
    """The cells of `decoding.py`, with XLA and without."""
    for size_name, size in sizes.items():
        with tempfile.TemporaryDirectory() as folder:
            loaded, bytes_of = exports(checkouts, EXPORT_CELLS, size_name, Path(folder))
            print_sizes(f"export of {size_name}", bytes_of)
            for cell in decoding.cells([size_name]):
                texts = [decoding.source_texts(size, cell.batch_size)]
                for ending in ("_xla", ""):
                    name = f"{cell.name}{', XLA' if ending else ', no XLA'}"
                    if wanted in name:
                        search = decoding.SEARCHES[cell.num_beams]
                        yield name, time_batches(loaded, search + ending, texts, rounds)


def sentence_cells(
    checkouts: dict[str, Checkout], rounds: int, run_dir: Path, split: str, count: int
) -> Iterator[tuple[str, dict[str, measure.Timing]]]:
    """The cells of `translation.py`: a trained run translates real sentences."""
    with tempfile.TemporaryDirectory() as name:
        folder, lines = Path(name), Path(name) / "sentences.txt"
        checkouts[OLD].run(SENTENCES, run_dir.resolve(), split, str(count), lines)
        texts = lines.read_text(encoding="utf-8").split("\n")
        loaded, bytes_of = exports(checkouts, EXPORT_RUN, str(run_dir.resolve()), folder)
        print_sizes(f"export of {run_dir.name}", bytes_of)
        for batch_size in (1, 32):
            batches = [texts[i : i + batch_size] for i in range(0, len(texts), batch_size)]
            for search in ("greedy", "beam_4"):
                for ending in ("_xla", ""):
                    label = f"sentences {batch_size} × {search}{', XLA' if ending else ', no XLA'}"
                    yield label, time_batches(loaded, search + ending, batches, rounds)


def training_step(
    checkouts: dict[str, Checkout], rounds: int, job: str
) -> Iterator[tuple[str, dict[str, measure.Timing]]]:
    """A training step of each checkout, in two processes."""
    for mode in ("xla", "no xla"):
        processes = {
            name: subprocess.Popen(
                **checkout.command(TRAIN, job, mode, str(os.cpu_count())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for name, checkout in checkouts.items()
        }
        losses = {name: process.stdout.readline() for name, process in processes.items()}
        if len(set(losses.values())) > 1:
            print(f"  training step: other losses: {losses}", flush=True)
        contenders = {name: measure.OwnClock(_asking(p)) for name, p in processes.items()}
        yield f"training step {job}, {mode}", measure.in_turn(contenders, rounds=rounds, warm_up=2)
        for process in processes.values():
            process.stdin.close()
            process.wait()


def _asking(process: Any) -> Callable[[], tuple[float, float]]:
    def ask() -> tuple[float, float]:
        process.stdin.write("go\n")
        process.stdin.flush()
        wall, cpu = map(float, process.stdout.readline().split())
        return wall, cpu

    return ask


def print_sizes(subject: str, bytes_of: dict[str, int]) -> None:
    change = bytes_of[NEW] / bytes_of[OLD]
    print(f"{subject}: {bytes_of[OLD]:,} -> {bytes_of[NEW]:,} bytes ({change:.4f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="a checkout")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cells", default="", help="only cells with this text in their name")
    parser.add_argument("--only", nargs="+", choices=("cells", "sentences", "training"))
    parser.add_argument("--run-dir", type=Path, help="a trained run: its sentences are translated")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--sentences", type=int, default=96)
    parser.add_argument("--job", default="tiny", help="of training_step.py")
    parser.add_argument("--smoke", action="store_true", help="a miniature: does it run?")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()
    checkouts = {OLD: Checkout(arguments.old.resolve()), NEW: Checkout(arguments.new.resolve())}
    parts = {
        "cells": lambda: decoding_cells(
            checkouts,
            arguments.rounds,
            decoding.SMOKE if arguments.smoke else decoding.SIZES,
            arguments.cells,
        ),
        "sentences": lambda: sentence_cells(
            checkouts, arguments.rounds, arguments.run_dir, arguments.split, arguments.sentences
        ),
        "training": lambda: training_step(
            checkouts, arguments.rounds, "miniature" if arguments.smoke else arguments.job
        ),
    }
    wanted = arguments.only or [name for name in parts if name != "sentences" or arguments.run_dir]
    rows = [
        "| cell | old, ms | new, ms | new / old | processor time |",
        "|---|---:|---:|---:|---:|",
    ]
    figures = {}
    for part in wanted:
        for name, timings in parts[part]():
            wall, cpu = ratios(timings)
            medians = " | ".join(f"{timings[side].median_ms:.2f}" for side in (OLD, NEW))
            rows.append(f"| {name} | {medians} | {wall:.3f} | {cpu:.3f} |")
            print(rows[-1], flush=True)
            figures[name] = {**timings, "ratio": wall, "cpu_ratio": cpu}
    print("\n".join(["", f"{os.cpu_count()} cores, {arguments.rounds} rounds", *rows]))
    if arguments.json:
        measure.write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
