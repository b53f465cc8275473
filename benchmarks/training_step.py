"""Time of one training step: ours beside plain Keras, keras-hub's blocks, torch and torch.compile.

All train the same encoder-decoder Transformer, of `peers.py`, on the same random batch without
padding, in turn, round after round, in several processes with the same settings of the allocator.
Memory is that of a process for each contender, which imports no other library.

    python benchmarks/training_step.py --size base                  # TensorFlow with XLA
    python benchmarks/training_step.py --size base --no-xla
    KERAS_BACKEND=jax python benchmarks/training_step.py --size base
    python benchmarks/training_step.py --size tiny --threads 1      # a busy machine: processor time

The floor is the time of the model's matrix products at the machine's own speed, which is measured
in the same rounds: a product of two square matrices by torch and by the backend of Keras, whichever
is faster. A contender's share of the peak is that floor over the time of its step. The operations
are counted by a formula, `Size.training_flops`; `--check-flops` compares it with the products of
XLA's program.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import measure
import peers

from keras_addnorm.runs.process_startup import ONE_ARENA, allocator_settings

Step = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Job:
    """A model, its batch, and the width of the square matrices whose product gives the peak."""

    size: peers.Size
    batch_size: int
    length: int
    matrix: int = 2048

    @property
    def batch(self) -> peers.Batch:
        return peers.random_batch(self.size, self.batch_size, self.length)

    @property
    def flops(self) -> int:
        return self.size.training_flops(self.batch_size, self.length)


SMOKE = "miniature"
JOBS = {
    "tiny": Job(peers.SIZES["tiny"], 128, 32),
    "base": Job(peers.SIZES["base"], 16, 64),
    "base 6+6": Job(peers.SIZES["base 6+6"], 16, 64),
    SMOKE: Job(peers.Size(1, 16, 24, 2, 50), 2, 8, 64),
}
CONTENDERS = (peers.OURS, peers.KERAS, peers.KERAS_HUB, peers.TORCH, peers.TORCH_COMPILED)


def make_step(name: str, job: Job, jit_compile: bool) -> Step:
    """A training step of a contender, over when its loss is known."""
    if name in (peers.TORCH, peers.TORCH_COMPILED):
        model = peers.torch_model(job.size)
        torch_step = peers.torch_step(model, compiled=name == peers.TORCH_COMPILED)
        batch = job.batch
        return lambda: float(torch_step(batch))
    model = peers.compiled(name, job.size, jit_compile)
    source, target, labels = job.batch
    inputs = {"source": source, "target": target}
    return lambda: float(model.train_on_batch(inputs, labels))


PEAKS = ("peak: torch", "peak: keras")


def matrix_products(width: int) -> dict[str, Step]:
    """A product of square matrices by each library: the machine's peak, as it can be reached."""
    import keras
    import numpy as np
    import torch

    a, b = np.random.default_rng(0).normal(size=(2, width, width)).astype("float32")
    torch_arrays = torch.from_numpy(a), torch.from_numpy(b)
    keras_arrays = keras.ops.convert_to_tensor(a), keras.ops.convert_to_tensor(b)
    products = (
        lambda: float(torch.matmul(*torch_arrays)[0, 0]),
        lambda: float(keras.ops.matmul(*keras_arrays)[0, 0]),
    )
    return dict(zip(PEAKS, products, strict=True))


def use_threads(threads: int) -> None:
    """Before anything else: a process of one thread stays on one core."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def import_libraries(names: Sequence[str], threads: int) -> None:
    """What the contenders need, and no more: memory counts from here."""
    if any(name.startswith(peers.TORCH) for name in names):
        import torch

        torch.set_num_threads(threads)
    if set(names) & set(peers.KERAS_MODELS):
        import keras

        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)


def time_in_turn(arguments: argparse.Namespace) -> dict[str, Any]:
    """What one process measures: rounds of all contenders and of the matrix products."""
    job = JOBS[arguments.size]
    import_libraries((peers.OURS, peers.TORCH), arguments.threads)
    steps = matrix_products(job.matrix)
    for name in arguments.contenders:
        steps[name] = make_step(name, job, not arguments.no_xla)
    timings = measure.in_turn(steps, rounds=arguments.rounds)
    return {name: dataclasses.asdict(timing) for name, timing in timings.items()}


def peak_memory(arguments: argparse.Namespace) -> dict[str, Any]:
    """What one process of one contender takes: in all, and beyond what it took to import."""
    import_libraries(arguments.contenders, arguments.threads)
    before = _resident_mib()
    (name,) = arguments.contenders
    step = make_step(name, JOBS[arguments.size], not arguments.no_xla)
    for _ in range(4):
        step()
    in_all = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {name: {"peak_mib": in_all, "peak_beyond_imports_mib": in_all - before}}


def _resident_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s*(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def flops_of_the_program(job: Job) -> int:
    """Floating-point operations of the matrix products in the program that XLA gets for a step."""
    import keras
    import tensorflow as tf

    model = peers.compiled(peers.OURS, job.size)
    source, target, labels = job.batch
    batch = {"source": source, "target": target}, labels
    model.train_on_batch(*batch)  # Makes the optimiser's variables.
    step = tf.function(model.train_step, jit_compile=True, autograph=False)
    inputs = keras.tree.map_structure(tf.constant, batch)
    return flops_of_products(step.experimental_get_compiler_ir(inputs)(stage="hlo"))


def flops_of_products(text: str) -> int:
    """The same from the text of a program."""
    shapes = dict(re.findall(r"(\S+) = (?:\w+)\[([\d,]*)\]", text))
    total = 0
    for result, left, contracted in re.findall(
        r"= \w+\[([\d,]*)\]\S* dot\((?:\w+\[[\d,]*\]\S* )?([\w.%-]+),.*?"
        r"lhs_contracting_dims=\{([\d,]*)\}",
        text,
    ):
        sides = [int(n) for n in shapes[left].split(",")]
        product = 2
        for n in result.split(","):
            product *= int(n) if n else 1
        for axis in contracted.split(","):
            product *= sides[int(axis)]
        total += product
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=JOBS, default="tiny")
    parser.add_argument("--no-xla", action="store_true", help="TensorFlow without XLA")
    parser.add_argument("--rounds", type=int, default=8, help="timed steps of each in a process")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--no-memory", action="store_true", help="leave out the memory")
    parser.add_argument("--smoke", action="store_true", help="two rounds of a miniature")
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--check-flops", action="store_true", help="only compare the two counts")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.size, arguments.rounds, arguments.processes = SMOKE, 2, 1

    if arguments.check_flops:
        job = JOBS[arguments.size]
        counted, found = job.flops, flops_of_the_program(job)
        print(f"formula {counted:,}, XLA's program {found:,}: {found / counted:.4f}")
    elif arguments.worker:
        use_threads(arguments.threads)
        text = json.dumps(WORKERS[arguments.worker](arguments))
        Path(arguments.result).write_text(text, encoding="utf-8")
    else:
        report(arguments)


WORKERS = {"times": time_in_turn, "memory": peak_memory}


def run_worker(kind: str, arguments: argparse.Namespace, contenders: list[str]) -> dict[str, Any]:
    """Measure in a process of its own, with the settings that all share."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, __file__, "--worker", kind, "--result", str(result)]
        command += ["--size", arguments.size, "--rounds", str(arguments.rounds)]
        command += ["--threads", str(arguments.threads), "--contenders", *contenders]
        command += ["--no-xla"] if arguments.no_xla else []
        # TensorFlow's own operations allocate in many threads, too.
        allocator = {**allocator_settings(), **(ONE_ARENA if arguments.no_xla else {})}
        subprocess.run(command, check=True, env={**os.environ, **allocator})
        return json.loads(result.read_text(encoding="utf-8"))


def report(arguments: argparse.Namespace) -> None:
    """Measure, print a table for the documents, write the figures down."""
    rounds: dict[str, dict[str, list[float]]] = {}
    for _ in range(arguments.processes):
        for name, lists in run_worker("times", arguments, arguments.contenders).items():
            mine = rounds.setdefault(name, {key: [] for key in lists})
            for key, values in lists.items():
                mine[key] += values
    timings = {
        name: measure.Timing(tuple(lists["wall_ms"]), tuple(lists["cpu_ms"]))
        for name, lists in rounds.items()
    }
    memory: dict[str, dict[str, float]] = {}
    for name in [] if arguments.no_memory else arguments.contenders:
        memory |= run_worker("memory", arguments, [name])

    figures = figures_of(arguments, timings, memory)
    print(markdown(arguments, figures))
    if arguments.json:
        measure.write_json(arguments.json, {**figures, "rounds": rounds})


def figures_of(
    arguments: argparse.Namespace,
    timings: dict[str, measure.Timing],
    memory: dict[str, dict[str, float]],
) -> dict[str, Any]:
    """All that is reported; with one thread, processor time takes the place of wall time."""
    job = JOBS[arguments.size]
    compiler = "no XLA" if arguments.no_xla else "XLA"
    kind = "best_cpu_ms" if arguments.threads == 1 else "median_ms"
    peak = 2 * job.matrix**3 / min(getattr(timings[name], kind) for name in PEAKS) / 1e6
    floor = job.flops / peak / 1e6
    first = getattr(timings[arguments.contenders[0]], kind)
    contenders = {}
    for name in arguments.contenders:
        time = getattr(timings[name], kind)
        shares = {"ms": time, "ratio": time / first, "share_of_peak": floor / time}
        contenders[name] = shares | timings[name].to_dict() | memory.get(name, {})
    return {
        "size": arguments.size,
        "job": dataclasses.asdict(job),
        "backend": f"{os.environ.get('KERAS_BACKEND', 'tensorflow')}, {compiler}",
        "threads": arguments.threads,
        "flops": job.flops,
        "peak_gflops": peak,
        "floor_ms": floor,
        "contenders": contenders,
    }


def markdown(arguments: argparse.Namespace, figures: dict[str, Any]) -> str:
    """The table of a size, as the documents have it."""
    kind = "smallest processor time" if arguments.threads == 1 else "median wall time"
    lines = [
        f"{arguments.size}, {figures['backend']}, {arguments.threads} threads: {kind} of "
        f"{arguments.processes} x {arguments.rounds} steps. Products: "
        f"{figures['flops'] / 1e9:.1f} GFLOP a step; peak {figures['peak_gflops']:.0f} GFLOP/s; "
        f"floor {figures['floor_ms']:.0f} ms.",
        "",
        f"| | {kind}, ms | / {arguments.contenders[0]} | share of peak | median processor ms "
        "| busy cores | peak memory, MiB | beyond imports |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in figures["contenders"].items():
        memory = (row.get(key) for key in ("peak_mib", "peak_beyond_imports_mib"))
        in_all, beyond = ("–" if mib is None else f"{mib:.0f}" for mib in memory)
        lines.append(
            f"| {name} | {row['ms']:.0f} | {row['ratio']:.2f} | {row['share_of_peak']:.0%} "
            f"| {row['median_cpu_ms']:.0f} | {row['busy_cores']:.2f} | {in_all} | {beyond} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
