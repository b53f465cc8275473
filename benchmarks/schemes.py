"""Time of a training step and of a greedy search with each residual scheme, beside Pre-LN.

Every scheme is in the same model of random weights, under XLA, and all are timed in turn: the ratio
of each round to Pre-LN's is taken, and the median of the ratios is printed. Compiling is not timed.

    python benchmarks/schemes.py                             # all schemes, both parts
    python benchmarks/schemes.py --only training --schemes mhc mhc_lite
    KERAS_BACKEND=jax python benchmarks/schemes.py
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

from keras_addnorm import schemes

REFERENCE = "pre_ln"


@dataclasses.dataclass(frozen=True)
class Job:
    """A model and its work."""

    size: peers.Size
    batch_size: int
    length: int


FULL = Job(peers.Size(3, 256, 1024, 4, 1_000), 16, 32)
SMOKE = Job(peers.Size(1, 16, 32, 2, 50), 2, 4)

# Those of the table whose cost their fields change; another name of a scheme is no other scheme.
VARIANTS: dict[str, Any] = {
    "hyper_connections, static": {"name": "hyper_connections", "dynamic": False},
    "frac_connections, dynamic": {"name": "frac_connections", "dynamic": True},
    "attention_residuals, blocks of 3": {"name": "attention_residuals", "block_size": 3},
}
CONTENDERS: dict[str, Any] = {
    **{name: name for name in schemes.names() if name != "peri_ln"},
    **VARIANTS,
}


def training(scheme: Any, job: Job) -> Callable[[], Any]:
    """A training step, over when its loss is known."""
    model = peers.compiled(peers.OURS, job.size, scheme=scheme)
    source, target, labels = peers.random_batch(job.size, job.batch_size, job.length)
    batch = {"source": source, "target": target}
    return lambda: float(model.train_on_batch(batch, labels))


def search(scheme: Any, job: Job) -> Callable[[], Any]:
    """A greedy search that does not end before its last position."""
    from keras_addnorm.decoding import constraints

    model = peers.ours(job.size, scheme=scheme, max_length=job.length)
    source, _, _ = peers.random_batch(job.size, job.batch_size, job.length)
    return functools.partial(
        model.generate,
        source,
        max_length=job.length,
        constraints=[constraints.MinLength(job.length)],
    )


PARTS = {"training": training, "search": search}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--schemes", choices=CONTENDERS, nargs="+", default=list(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--smoke", action="store_true", help="two rounds of a miniature")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()
    job, rounds = (SMOKE, 2) if arguments.smoke else (FULL, arguments.rounds)
    names = list(dict.fromkeys([REFERENCE, *arguments.schemes]))
    figures = {}
    for part in arguments.only:
        runs = {name: PARTS[part](CONTENDERS[name], job) for name in names}
        timings = measure.in_turn(runs, rounds=rounds)
        reference = timings[REFERENCE].wall_ms
        figures[part] = {
            name: {**timing.to_dict(), "ratio": measure.median_ratio(timing.wall_ms, reference)}
            for name, timing in timings.items()
        }
        print(f"| {part} | ms | × {REFERENCE} |\n|---|---:|---:|")
        for name, row in figures[part].items():
            print(f"| `{name}` | {row['median_ms']:.1f} | {row['ratio']:.2f} |", flush=True)
    if arguments.json:
        measure.write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
