"""Time of one Add & Norm: Keras' two layers, ours, and torch's kernels, in turn in one process.

Each contender computes `norm(x + f)`, and in the second table also the gradients of `x` (which is
that of `f`, too) and of the norm's weights. The backend of Keras is the one that KERAS_BACKEND
names: TensorFlow with and without XLA, or JAX under `jax.jit`; torch stands beside either.

Times on a busy machine say little; processor time (`cpu ms`) says more, and with `--threads 1` the
smallest of all rounds says most: a second table takes it. Its `call` rows are compiled functions
that do nothing: what it costs to start one from Python is in the other rows, too. Its last column
is the share of a copy's bandwidth, which is 1 for a program that touches each number once and does
nothing else. With N numbers in x, forward moves at least 3 N (reads x and f, writes y), forward and
backward 6 N (then reads x + f and the gradient of y, writes that of x), and a copy 2 N:

    share = (arrays moved / time) / (2 / time of a copy)
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable
from typing import Any

import measure
import numpy as np

ARRAYS_MOVED = {"forward": 3, "forward and backward": 6}
EPSILON = 1e-6

Run = Callable[[], Any]


class Problem:
    """The arrays that all contenders share."""

    def __init__(self, shape: tuple[int, ...], norm: str) -> None:
        rng = np.random.default_rng(0)
        self.x, self.f, self.upstream = rng.normal(size=(3, *shape)).astype("float32")
        self.norm = norm

    @property
    def width(self) -> int:
        return self.x.shape[-1]


def keras_contenders(problem: Problem, backward: bool) -> dict[str, Run]:
    """Keras' two layers and ours, compiled in each way that the backend has."""
    import keras

    from keras_addnorm.layers import AddNorm

    theirs = {
        "layer_norm": keras.layers.LayerNormalization,
        "rms_norm": keras.layers.RMSNormalization,
    }[problem.norm](epsilon=EPSILON)
    ours = AddNorm(norm=problem.norm, epsilon=EPSILON)
    layers = {
        "keras": (lambda x, f: theirs(keras.layers.add([x, f])), theirs),
        "ours": (ours, ours),
    }
    for call, _ in layers.values():
        call(problem.x, problem.f)
    compilers = {"tensorflow": tensorflow_runs, "jax": jax_runs}
    compiled = compilers[keras.backend.backend()]
    return {
        f"{name}, {how}": run
        for name, (call, layer) in layers.items()
        for how, run in compiled(problem, call, layer, backward).items()
    }


def tensorflow_runs(
    problem: Problem, call: Callable[..., Any], layer: Any, backward: bool
) -> dict[str, Run]:
    import tensorflow as tf

    def step(x: tf.Tensor, f: tf.Tensor, upstream: tf.Tensor) -> Any:
        if not backward:
            return call(x, f)
        weights = [weight.value for weight in layer.trainable_weights]
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = call(x, f)
        return y, tape.gradient(y, [x, *weights], upstream)

    arrays = [tf.constant(a) for a in (problem.x, problem.f, problem.upstream)]
    return {
        how: functools.partial(tf.function(step, jit_compile=jit, autograph=False), *arrays)
        for how, jit in {"XLA": True, "no XLA": False}.items()
    }


def jax_runs(
    problem: Problem, call: Callable[..., Any], layer: Any, backward: bool
) -> dict[str, Run]:
    import jax
    import keras

    def pure(x: Any, f: Any, weights: list[Any]) -> Any:
        with keras.StatelessScope(
            state_mapping=list(zip(layer.trainable_weights, weights, strict=True))
        ):
            return call(x, f)

    @jax.jit
    def step(x: Any, f: Any, weights: list[Any], upstream: Any) -> Any:
        if not backward:
            return pure(x, f, weights)
        y, pull_back = jax.vjp(lambda x, weights: pure(x, f, weights), x, weights)
        return y, pull_back(upstream)

    weights = [weight.value for weight in layer.trainable_weights]
    x, f, upstream = (jax.numpy.asarray(a) for a in (problem.x, problem.f, problem.upstream))
    return {"JAX": lambda: jax.block_until_ready(step(x, f, weights, upstream))}


def empty_calls() -> dict[str, Run]:
    """Compiled functions that do nothing."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        function, one = jax.jit(lambda x: x + 1), jax.numpy.ones(1)
        return {"call, JAX": lambda: jax.block_until_ready(function(one))}
    import tensorflow as tf

    return {
        f"call, {how}": functools.partial(
            tf.function(lambda x: x + 1, jit_compile=jit, autograph=False), tf.ones(1)
        )
        for how, jit in {"XLA": True, "no XLA": False}.items()
    }


def torch_contender(problem: Problem, backward: bool) -> Run:
    import torch

    norm = {"layer_norm": torch.nn.LayerNorm, "rms_norm": torch.nn.RMSNorm}[problem.norm](
        problem.width, eps=EPSILON
    )
    x, f, upstream = (torch.from_numpy(a) for a in (problem.x, problem.f, problem.upstream))
    if not backward:
        return torch.no_grad()(lambda: norm(x + f))
    x.requires_grad_()

    def run() -> Any:
        y = norm(x + f)
        return y, torch.autograd.grad(y, [x, *norm.parameters()], upstream)

    return run


def copy_contender(problem: Problem) -> Run:
    target = np.empty_like(problem.x)
    return lambda: np.copyto(target, problem.x)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="32,128,512", help="of x: batch, length, width")
    parser.add_argument("--norm", default="layer_norm", choices=["layer_norm", "rms_norm"])
    parser.add_argument("--threads", type=int, default=1, help="cores that the process may use")
    parser.add_argument("--rounds", type=int, default=30, help="timed rounds of each contender")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()
    # Before the libraries are imported: each sizes its pool of threads by the cores that it sees.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])

    shape = tuple(int(size) for size in arguments.shape.split(","))
    problem = Problem(shape, arguments.norm)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for what, arrays_moved in ARRAYS_MOVED.items():
        backward = what != "forward"
        contenders = {
            "torch": torch_contender(problem, backward),
            **keras_contenders(problem, backward),
        }
        references = {**empty_calls(), "copy": copy_contender(problem)}
        timings = measure.in_turn(contenders | references, rounds=arguments.rounds, calls=3)
        print(f"\n{arguments.norm} {list(shape)}, {arguments.threads} threads, {what}")
        print(measure.table(timings, reference="torch"))
        copy, torch = (timings[name].best_cpu_ms for name in ("copy", "torch"))
        print(f"{'':16} {'best cpu ms':>12} {'/ torch':>8} {'share of a copy':>16}")
        figures[what] = {name: timing.to_dict() for name, timing in timings.items()}
        for name, timing in timings.items():
            best = timing.best_cpu_ms
            line = f"{name:16} {best:12.2f} {best / torch:8.2f}"
            if name in contenders:
                share = arguments.threads * arrays_moved / best / (2 / copy)
                figures[what][name]["share_of_copy_bandwidth"] = share
                line += f" {share:16.2f}"
            print(line)
    if arguments.json:
        measure.write_json(arguments.json, {**vars(arguments), "figures": figures})


if __name__ == "__main__":
    main()
