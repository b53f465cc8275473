"""How long until something happens: imports, the first training step, an export's first answer.

Everything is measured in fresh processes, one after another, round after round. Times count from
the start of the process and are the smallest of the rounds; processor time counts all threads.

    python benchmarks/startup.py                          # all of it: about 15 minutes
    python benchmarks/startup.py --only "6+6" --rounds 5
    python benchmarks/startup.py --only answer --saved-model saved_models/mine/1
    python benchmarks/startup.py --only "addnorm, 6+6" --keep-programs runs/programs
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure
import peers

DEPTHS = (1, 2, 4, 6)
ANSWER = "first answer"
TEXT, VOCABULARY = "a small house", 800

Mark = Callable[[str], None]


def imports(mark: Mark) -> None:
    import keras

    backend = keras.backend.backend()
    mark(f"import keras ({backend})")
    import keras_addnorm

    mark("and keras_addnorm")
    for room in ("layers", "models", "training", "decoding"):
        getattr(keras_addnorm, room)
    mark("and its layers, models, training and decoding")
    if backend != "tensorflow" and "tensorflow" in sys.modules:
        raise SystemExit("keras_addnorm imported TensorFlow on another backend.")


def first_step(mark: Mark, contender: str, layers: int, jit_compile: bool) -> None:
    import keras  # noqa: F401

    if contender == peers.OURS:
        from keras_addnorm import models, training  # noqa: F401
    mark("imported")
    size = peers.Size(layers, 128, 256, 4, 8_000)
    model = peers.compiled(contender, size, jit_compile)
    mark("model made")
    source, target, labels = peers.random_batch(size, 8, 16)
    inputs = {"source": source, "target": target}
    model.fit(inputs, labels, batch_size=len(labels), verbose=0)
    mark("first step")


def first_answer(mark: Mark, folder: str) -> None:
    import tensorflow as tf

    mark("import tensorflow")
    module = tf.saved_model.load(folder)
    mark("loaded")
    translate = module.signatures["serving_default"]
    _ask_twice(mark, lambda: translate(texts=tf.constant([TEXT]))["translations"].numpy())


def served_answer(mark: Mark, folder: str) -> None:
    import numpy as np

    from keras_addnorm.serving.server.loaded_version import LoadedVersion
    from keras_addnorm.serving.server.settings import Settings

    mark("imported")
    version = LoadedVersion(Path(folder), intra_op_threads=Settings.intra_op_threads)
    mark("loaded")
    translate = version.signatures["serving_default"]
    _ask_twice(mark, lambda: translate({"texts": np.array([TEXT], object)}))


def _ask_twice(mark: Mark, ask: Callable[[], object]) -> None:
    for answer in ("first answer", "second answer"):
        ask()
        mark(answer)


ACTIONS = {action.__name__: action for action in (imports, first_step, first_answer, served_answer)}


@dataclass(frozen=True)
class Probe:
    """What one process does.

    Attributes:
        name: Its row in the tables.
        action: One of `ACTIONS`.
        arguments: Of the action, after `mark`.
    """

    name: str
    action: str
    arguments: tuple[Any, ...] = ()

    def run(self) -> dict[str, dict[str, float]]:
        """Start a process; returns the wall and processor ms at which each mark was reached."""
        request = json.dumps([self.action, self.arguments, time.time()])
        done = subprocess.run(
            [sys.executable, __file__, "--child", request],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        marks: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
        return marks


def child(request: str) -> None:
    """In the new process: does what is asked and prints when each mark was reached."""
    action, arguments, started = json.loads(request)
    marks: dict[str, dict[str, float]] = {}

    def mark(name: str) -> None:
        wall, cpu = time.time() - started, time.process_time()
        marks[name] = {"wall_ms": 1000 * wall, "cpu_ms": 1000 * cpu}

    ACTIONS[action](mark, *arguments)
    print(json.dumps(marks))


def step_probes(depths: Sequence[int], compilers: Sequence[bool]) -> Iterator[Probe]:
    for jit_compile in compilers:
        for layers in depths:
            for contender in (peers.OURS, peers.KERAS):
                compiler = "XLA" if jit_compile else "no XLA"
                name = f"{contender}, {layers}+{layers}, {compiler}"
                yield Probe(name, "first_step", (contender, layers, jit_compile))


def export_tiny(folder: Path) -> Path:
    """Writes a model of the size tiny with random weights, which answers as any other does."""
    from keras_addnorm.data import TokenizerPair, demo_pairs
    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
    from keras_addnorm.serving import export_saved_model

    pairs = [(pair.source, pair.target) for pair in itertools.islice(demo_pairs("de"), 5000)]
    tokenizers = TokenizerPair.train(pairs, vocabulary_size=VOCABULARY)
    config = Seq2SeqConfig.preset(
        "tiny",
        source_vocabulary_size=VOCABULARY,
        target_vocabulary_size=VOCABULARY,
        share_embeddings=True,
    )
    return export_saved_model(Seq2SeqTransformer(config), tokenizers, folder, max_length=32)


def keep_programs(folder: Path) -> None:
    """What one process compiles, the next one finds: the compilers' own caches, for a CPU."""
    tensorflow = {"directory": folder, "device_types": "CPU"}
    flags = [f"--tf_xla_persistent_cache_{name}={value}" for name, value in tensorflow.items()]
    os.environ["TF_XLA_FLAGS"] = " ".join(flags)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"


def run_in_turn(probes: Sequence[Probe], rounds: int) -> dict[str, dict[str, measure.Timing]]:
    """For each probe, when each of its marks was reached."""
    reached: dict[str, list[dict[str, dict[str, float]]]] = {probe.name: [] for probe in probes}
    for _ in range(rounds):
        for probe in probes:
            reached[probe.name].append(probe.run())
    return {
        name: {
            mark: measure.Timing(
                tuple(times[mark]["wall_ms"] for times in runs),
                tuple(times[mark]["cpu_ms"] for times in runs),
            )
            for mark in runs[0]
        }
        for name, runs in reached.items()
    }


def report(timings: dict[str, dict[str, measure.Timing]]) -> str:
    """A row for each mark: the smallest times since the start, and since the mark before."""
    lines = [
        "| process | mark | processor s | since the mark before | wall s |",
        "|---|---|---:|---:|---:|",
    ]
    for name, marks in timings.items():
        before = (0.0,) * len(next(iter(marks.values())).cpu_ms)
        for mark, timing in marks.items():
            since = min(now - then for now, then in zip(timing.cpu_ms, before, strict=True))
            lines.append(
                f"| {name} | {mark} | {timing.best_cpu_ms / 1000:.2f} | {since / 1000:.2f} "
                f"| {timing.best_ms / 1000:.2f} |"
            )
            before = timing.cpu_ms
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only probes with this text in their name")
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS, help="n of n+n layers")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind")
    parser.add_argument("--saved-model", help="an export to load; by default one is made")
    parser.add_argument(
        "--keep-programs", type=Path, help="folder for what is compiled; later rounds read it"
    )
    parser.add_argument("--smoke", action="store_true", help="a round of what is quick")
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    if arguments.keep_programs:
        keep_programs(arguments.keep_programs)
    with tempfile.TemporaryDirectory() as scratch:
        probes = [Probe("imports", "imports")]
        if arguments.smoke:
            probes += step_probes((1,), (True,))
        else:
            probes += step_probes(arguments.depths, (True, False))
        probes = [probe for probe in probes if arguments.only in probe.name]
        if arguments.only in ANSWER and not arguments.smoke:
            saved_model = arguments.saved_model or str(export_tiny(Path(scratch)))
            probes.append(Probe(f"{ANSWER}, tf.saved_model.load", "first_answer", (saved_model,)))
            probes.append(Probe(f"{ANSWER}, our server", "served_answer", (saved_model,)))
        timings = run_in_turn(probes, 1 if arguments.smoke else arguments.rounds)
    print(report(timings))
    if arguments.json:
        measure.write_json(arguments.json, timings)


if __name__ == "__main__":
    main()
