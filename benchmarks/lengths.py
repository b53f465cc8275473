"""What a token costs at each length, in training and in decoding, with JAX and with TensorFlow.

A training step has as many tokens at each length. A greedy search of four rows makes as many steps
as its source has tokens. Time is processor time for each target token, the smallest of the rounds;
memory is the most that the first call holds above what was there before, compiling included; of a
training step on JAX what XLA plans for its temporary arrays, and the operations, stand beside.

    python benchmarks/lengths.py                      # the width of base, 1+1 layers
    python benchmarks/lengths.py --only "training, JAX" --plan    # compiles, and runs nothing
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure
import peers

from keras_addnorm.runs.process_startup import allocator_settings

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
WIDTH, INNER, HEADS, VOCABULARY = 512, 2048, 8, 2_000
ROWS_OF_SEARCH = 4
MINIATURE = peers.Size(1, 16, 32, 2, 60)


def training_on_jax(size: peers.Size, length: int, tokens: int, rounds: int) -> dict[str, Any]:
    """The step of `fit`, compiled once and called."""
    import jax_programs

    batch = peers.random_batch(size, tokens // length, length)
    model = peers.compiled(peers.OURS, size, max_length=length)
    cost, made = measure.cost_of(lambda: jax_programs.training_step(model, batch))
    found: dict[str, Any] = {
        "gflop": made.flops / 1e9,
        "temporary_mb": made.compiled.memory_analysis().temp_size_in_bytes / 1e6,
    }
    if rounds:
        cost, _ = measure.cost_of(made.run)
        found |= {"us_a_token": _us_a_token(made.run, rounds, tokens), "peak_mb": cost.peak_mb}
    return found


def training_on_tensorflow(
    size: peers.Size, length: int, tokens: int, rounds: int
) -> dict[str, Any]:
    """The step of `fit` under XLA."""
    source, target, labels = peers.random_batch(size, tokens // length, length)
    model = peers.compiled(peers.OURS, size, max_length=length)

    def step() -> Any:
        return model.train_on_batch({"source": source, "target": target}, labels)

    return _called(step, rounds, tokens)


def search(
    size: peers.Size, length: int, tokens: int, rounds: int, jit_compile: bool = True
) -> dict[str, Any]:
    """A greedy search that makes all its steps."""
    del tokens
    model = peers.never_ending(peers.ours(size, max_length=length))
    source = peers.random_batch(size, ROWS_OF_SEARCH, length)[0]

    def decode() -> Any:
        return model.generate(source, max_length=length, jit_compile=jit_compile)

    return _called(decode, rounds, ROWS_OF_SEARCH * length)


def _called(work: Callable[[], Any], rounds: int, tokens: int) -> dict[str, Any]:
    cost, _ = measure.cost_of(work)
    return {
        "first_call_s": cost.cpu_s,
        "peak_mb": cost.peak_mb,
        "us_a_token": _us_a_token(work, rounds, tokens),
    }


def _us_a_token(work: Callable[[], Any], rounds: int, tokens: int) -> float:
    timing = measure.in_turn({"": work}, rounds=rounds, warm_up=0)[""]
    return 1000 * timing.best_cpu_ms / tokens


# What is measured, and its back end.
CONTENDERS: dict[str, tuple[str, Callable[..., dict[str, Any]]]] = {
    "training, JAX": ("jax", training_on_jax),
    "training, TensorFlow with XLA": ("tensorflow", training_on_tensorflow),
    "greedy, JAX": ("jax", search),
    "greedy, TensorFlow with XLA": ("tensorflow", search),
    "greedy, TensorFlow without XLA": (
        "tensorflow",
        functools.partial(search, jit_compile=False),
    ),
}


def walk(name: str, options: argparse.Namespace) -> None:
    """Measures a contender in this process at each length; prints a line of JSON for each."""
    import keras

    size = MINIATURE if options.smoke else peers.Size(options.layers, *_WIDE)
    for length in options.lengths:
        keras.backend.clear_session()
        rounds = 0 if options.plan else options.rounds
        found = CONTENDERS[name][1](size, length, options.tokens, rounds)
        print(json.dumps({"what": name, "length": length, **found}), flush=True)


_WIDE = (WIDTH, INNER, HEADS, VOCABULARY)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each contender and length."""
    names = ("us_a_token", "peak_mb", "first_call_s", "temporary_mb", "gflop")
    lines = [
        "| | length | CPU us a token | peak MB | first call, CPU s | temporary MB | GFLOP |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = (f"{row[name]:,.1f}" if name in row else "" for name in names)
        lines.append(f"| {row['what']} | {row['length']:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens of a training step")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="timed calls")
    parser.add_argument("--plan", action="store_true", help="training on JAX is only compiled")
    parser.add_argument("--smoke", action="store_true", help="two lengths of a miniature")
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.smoke:
        options.lengths, options.tokens, options.rounds = (8, 16), 64, 1
    if options.worker:
        walk(options.only[0], options)
        return
    rows: list[dict[str, Any]] = []
    for name in options.only:
        command = [sys.executable, __file__, *(argv or sys.argv[1:]), "--worker", "--only", name]
        environment = {
            **os.environ,
            **allocator_settings(),
            "KERAS_BACKEND": CONTENDERS[name][0],
        }
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            for line in process.stdout or ():
                rows.append(json.loads(line))
                print(line, end="", flush=True)
        if process.returncode:
            raise SystemExit(f"{name} failed")
    print(f"\n{table(rows)}")
    if options.json:
        measure.write_json(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
