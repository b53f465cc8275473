"""Time of a training step and of searches with each kind of decoder self-attention.

The kinds stand in the same model of random weights, whose training batches have unknown lengths, as
those of a corpus have; all are timed in turn. The ratio of each round to multi-head attention's is
taken, and the median of the ratios is printed, of wall time and of processor time. Compiling is not
timed.

    python benchmarks/self_attention.py                      # TensorFlow, with XLA and without
    python benchmarks/self_attention.py --only beam --positions 128
    KERAS_BACKEND=jax python benchmarks/self_attention.py
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure
import peers

from keras_addnorm.layers import self_attention

REFERENCE = self_attention.MULTI_HEAD_ATTENTION


@dataclasses.dataclass(frozen=True)
class Job:
    """A model and its work."""

    size: peers.Size
    batch_size: int
    length: int


FULL = Job(peers.Size(3, 256, 1536, 8, 1_000), 32, 48)
SMOKE = Job(peers.Size(1, 16, 32, 2, 50), 2, 4)


def training(kind: str, job: Job, jit_compile: bool) -> Callable[[], Any]:
    """A training step, over when its loss is known."""
    model = peers.compiled(peers.OURS, job.size, jit_compile, self_attention=kind)
    batches = [
        peers.random_batch(job.size, job.batch_size, length)
        for length in (job.length, job.length + 1)
    ]
    for source, target, labels in batches:  # After two lengths TensorFlow compiles one for all.
        model.train_on_batch({"source": source, "target": target}, labels)
    source, target, labels = batches[0]
    batch = {"source": source, "target": target}
    return lambda: float(model.train_on_batch(batch, labels))


def search(kind: str, job: Job, jit_compile: bool, **strategy: Any) -> Callable[[], Any]:
    """A search that does not end before its last position."""
    from keras_addnorm.decoding import constraints

    model = peers.ours(job.size, self_attention=kind, max_length=job.length)
    source, _, _ = peers.random_batch(job.size, job.batch_size, job.length)
    return functools.partial(
        model.generate,
        source,
        **strategy,
        max_length=job.length,
        constraints=[constraints.MinLength(job.length)],
        jit_compile=jit_compile,
    )


PARTS = {
    "training": training,
    "greedy": search,
    "beam": functools.partial(search, num_beams=4),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--positions", type=int, help="length of sources and targets")
    parser.add_argument("--rows", type=int, help="sentences a batch")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--smoke", action="store_true", help="two rounds of a miniature")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()
    job, rounds = (SMOKE, 2) if arguments.smoke else (FULL, arguments.rounds)
    job = dataclasses.replace(
        job,
        length=arguments.positions or job.length,
        batch_size=arguments.rows or job.batch_size,
    )
    import keras

    ways = (True, False) if keras.backend.backend() == "tensorflow" else (True,)
    figures = {}
    for part in arguments.only:
        for jit_compile in ways:
            runs = {kind: PARTS[part](kind, job, jit_compile) for kind in self_attention.names()}
            timings = measure.in_turn(runs, rounds=rounds)
            reference = timings[REFERENCE]
            name = part if jit_compile else f"{part}, without XLA"
            figures[name] = {
                kind: {
                    **timing.to_dict(),
                    "ratio": measure.median_ratio(timing.wall_ms, reference.wall_ms),
                    "cpu_ratio": measure.median_ratio(timing.cpu_ms, reference.cpu_ms),
                }
                for kind, timing in timings.items()
            }
            print(f"| {name} | ms | × attention | processor time |\n|---|---:|---:|---:|")
            for kind, row in figures[name].items():
                print(
                    f"| `{kind}` | {row['median_ms']:.1f} | {row['ratio']:.2f} | "
                    f"{row['cpu_ratio']:.2f} |",
                    flush=True,
                )
    if arguments.json:
        measure.write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
