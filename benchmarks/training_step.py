"""Time of one training step: ours beside plain Keras, keras-hub's blocks, torch and torch.compile.

All train the same encoder-decoder Transformer (one tied embedding, Pre-LN, Adam, label smoothing
0.1, dropout 0.1) on the same random batch without padding, in turn, round after round, in several
processes with the same settings of the allocator. Memory is that of a process for each contender.

    python benchmarks/training_step.py --size base                  # TensorFlow with XLA
    python benchmarks/training_step.py --size base --no-xla
    KERAS_BACKEND=jax python benchmarks/training_step.py --size base
    python benchmarks/training_step.py --size tiny --threads 1      # a busy machine: processor time

The floor is the time of the model's matrix products at the machine's own speed, which is measured
in the same rounds: a product of two square matrices by torch and by the backend of Keras, whichever
is faster. A contender's share of the peak is that floor over the time of its step. The operations
are counted by a formula, `flops` below; `--check-flops` compares it with the products in XLA's
program.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

DROPOUT, SMOOTHING, LEARNING_RATE = 0.1, 0.1, 1e-4
PEAK_SIDE = 2048
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
# Without XLA, many threads allocate: one arena keeps them from faulting memory in again.
NO_XLA_ALLOCATOR = {**ALLOCATOR, "MALLOC_ARENA_MAX": "1"}


@dataclasses.dataclass(frozen=True)
class Size:
    """Shape of the model and of its batch."""

    layers: int
    hidden_dim: int
    intermediate_dim: int
    num_heads: int
    vocabulary_size: int
    batch_size: int
    length: int


SIZES = {
    "tiny": Size(4, 128, 256, 4, 10_000, 128, 32),
    "base": Size(3, 512, 2048, 8, 8_000, 16, 64),
    "base 6+6": Size(6, 512, 2048, 8, 8_000, 16, 64),
}

Batch = Any
Step = Callable[[], float]


def flops(size: Size) -> int:
    """Floating-point operations of the matrix products of one step, forward and backward.

    A product of N x K with K x M is 2 N K M, and its two gradients are as much each.
    """
    d, tokens = size.hidden_dim, size.batch_size * size.length
    feed_forward = 2 * d * size.intermediate_dim
    encoder_layer = 4 * d * d + feed_forward
    decoder_layer = 8 * d * d + feed_forward
    # Scores and weighted sums, of three attentions: length x length x d each.
    attention = 3 * 2 * size.length * d
    a_token = size.layers * (encoder_layer + decoder_layer + attention) + d * size.vocabulary_size
    return 3 * 2 * tokens * a_token


def batch_of(size: Size) -> Batch:
    import numpy as np

    rng = np.random.default_rng(0)
    shape = (3, size.batch_size, size.length)
    source, target, labels = rng.integers(3, size.vocabulary_size, shape).astype("int32")
    return {"source": source, "target": target}, labels


def waves_of(size: Size) -> Any:
    """Sinusoidal positions, `(length, hidden_dim)`, made once."""
    import numpy as np

    rates = 10000.0 ** (-np.arange(0, size.hidden_dim, 2) / size.hidden_dim)
    angles = np.arange(size.length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype("float32")


def ours(size: Size, jit_compile: bool) -> Step:
    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
    from keras_addnorm.training import Adam, MaskedSparseCategoricalCrossentropy

    config = Seq2SeqConfig(
        source_vocabulary_size=size.vocabulary_size,
        target_vocabulary_size=size.vocabulary_size,
        num_encoder_layers=size.layers,
        num_decoder_layers=size.layers,
        hidden_dim=size.hidden_dim,
        intermediate_dim=size.intermediate_dim,
        num_heads=size.num_heads,
        dropout=DROPOUT,
        scheme="pre_ln",
        share_embeddings=True,
    )
    model = Seq2SeqTransformer(config)
    loss = MaskedSparseCategoricalCrossentropy(label_smoothing=SMOOTHING)
    model.compile(Adam(LEARNING_RATE), loss, jit_compile=jit_compile)
    return _keras_step(model, size)


def plain_keras(size: Size, jit_compile: bool) -> Step:
    """Keras' own layers, put together as its tutorials do."""
    import keras

    d = size.hidden_dim

    def normalised(x: Any) -> Any:
        return keras.layers.LayerNormalization(epsilon=1e-6)(x)

    def attended(x: Any, memory: Any, **options: Any) -> Any:
        attention = keras.layers.MultiHeadAttention(size.num_heads, d // size.num_heads)
        return x[0] + keras.layers.Dropout(DROPOUT)(attention(x[1], memory, **options))

    def fed_forward(x: Any) -> Any:
        h = keras.layers.Dense(size.intermediate_dim, activation="relu")(normalised(x))
        return x + keras.layers.Dropout(DROPOUT)(keras.layers.Dense(d)(h))

    def encoder_layer(x: Any, mask: Any) -> Any:
        h = normalised(x)
        return fed_forward(attended((x, h), h, attention_mask=mask))

    def decoder_layer(x: Any, memory: Any, mask: Any) -> Any:
        h = normalised(x)
        x = attended((x, h), h, use_causal_mask=True)
        return fed_forward(attended((x, normalised(x)), memory, attention_mask=mask))

    model = _encoder_decoder(size, encoder_layer, decoder_layer)
    return _peer_step(model, size, jit_compile)


def keras_hub_blocks(size: Size, jit_compile: bool) -> Step:
    import keras_hub

    arguments = {
        "intermediate_dim": size.intermediate_dim,
        "num_heads": size.num_heads,
        "dropout": DROPOUT,
        "normalize_first": True,
    }

    def encoder_layer(x: Any, mask: Any) -> Any:
        return keras_hub.layers.TransformerEncoder(**arguments)(x, padding_mask=mask[:, 0])

    def decoder_layer(x: Any, memory: Any, mask: Any) -> Any:
        layer = keras_hub.layers.TransformerDecoder(**arguments)
        return layer(x, memory, encoder_padding_mask=mask[:, 0])

    model = _encoder_decoder(size, encoder_layer, decoder_layer)
    return _peer_step(model, size, jit_compile)


def _encoder_decoder(size: Size, encoder_layer: Any, decoder_layer: Any) -> Any:
    import keras

    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embedding = keras.layers.ReversibleEmbedding(size.vocabulary_size, size.hidden_dim)
    waves = waves_of(size)

    def embed(ids: Any) -> Any:
        x = embedding(ids) * size.hidden_dim**0.5
        return keras.layers.Dropout(DROPOUT)(x + waves)

    x, y = embed(source), embed(target)
    mask = keras.ops.not_equal(source, 0)[:, None, :]
    for _ in range(size.layers):
        x = encoder_layer(x, mask)
    x = keras.layers.LayerNormalization(epsilon=1e-6)(x)
    for _ in range(size.layers):
        y = decoder_layer(y, x, mask)
    y = keras.layers.LayerNormalization(epsilon=1e-6)(y)
    return keras.Model({"source": source, "target": target}, embedding(y, reverse=True))


def _peer_step(model: Any, size: Size, jit_compile: bool) -> Step:
    import keras
    from keras import ops

    def loss(labels: Any, logits: Any) -> Any:
        """Label smoothing as one writes it down: no rows of targets."""
        log_shares = ops.log_softmax(logits)
        labels = ops.cast(ops.expand_dims(labels, -1), "int32")
        found = ops.take_along_axis(log_shares, labels, axis=-1)[..., 0]
        values = -(1 - SMOOTHING) * found - SMOOTHING * ops.mean(log_shares, axis=-1)
        is_real = ops.cast(labels[..., 0] != 0, values.dtype)
        return ops.sum(values * is_real) / ops.sum(is_real)

    model.compile(keras.optimizers.Adam(LEARNING_RATE), loss, jit_compile=jit_compile)
    return _keras_step(model, size)


def _keras_step(model: Any, size: Size) -> Step:
    inputs, labels = batch_of(size)
    return lambda: float(model.train_on_batch(inputs, labels))


def torch_layers(size: Size, compiled: bool = False) -> Step:
    """The same model from torch's own layers."""
    import torch

    class Seq2Seq(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(size.vocabulary_size, size.hidden_dim)
            # Of the size that ours has; torch's own, 1, starts at logits of hundreds.
            torch.nn.init.normal_(self.embedding.weight, std=size.hidden_dim**-0.5)
            self.transformer = torch.nn.Transformer(
                size.hidden_dim,
                size.num_heads,
                size.layers,
                size.layers,
                size.intermediate_dim,
                DROPOUT,
                batch_first=True,
                norm_first=True,
            )
            self.dropout = torch.nn.Dropout(DROPOUT)
            waves = torch.from_numpy(waves_of(size))
            self.register_buffer("positions", waves)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            causal = torch.nn.Transformer.generate_square_subsequent_mask(target.shape[1])
            x, y = (
                self.dropout(self.embedding(ids) * size.hidden_dim**0.5 + self.positions)
                for ids in (source, target)
            )
            h = self.transformer(
                x,
                y,
                tgt_mask=causal,
                tgt_is_causal=True,
                src_key_padding_mask=source == 0,
                memory_key_padding_mask=source == 0,
            )
            return h @ self.embedding.weight.T

    model = Seq2Seq()
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    loss_function = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=SMOOTHING)

    def loss_of(source: torch.Tensor, target: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return loss_function(model(source, target).flatten(0, 1), labels.flatten())

    forward = torch.compile(loss_of) if compiled else loss_of
    inputs, labels = batch_of(size)
    arrays = (inputs["source"], inputs["target"], labels)

    def step() -> float:
        optimizer.zero_grad()
        loss = forward(*(torch.from_numpy(array).long() for array in arrays))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


CONTENDERS: dict[str, Callable[[Size, bool], Step]] = {
    "keras-addnorm": ours,
    "plain Keras layers": plain_keras,
    "keras-hub blocks": keras_hub_blocks,
    "torch eager": lambda size, jit_compile: torch_layers(size),
    "torch.compile": lambda size, jit_compile: torch_layers(size, compiled=True),
}


def matrix_products() -> dict[str, Step]:
    """A product of square matrices by each library: the machine's peak, as it can be reached."""
    import keras
    import numpy as np
    import torch

    a, b = np.random.default_rng(0).normal(size=(2, PEAK_SIDE, PEAK_SIDE)).astype("float32")
    torch_arrays = torch.from_numpy(a), torch.from_numpy(b)
    keras_arrays = keras.ops.convert_to_tensor(a), keras.ops.convert_to_tensor(b)
    return {
        "peak: torch": lambda: float(torch.matmul(*torch_arrays)[0, 0]),
        "peak: keras": lambda: float(keras.ops.matmul(*keras_arrays)[0, 0]),
    }


def use_threads(threads: int) -> None:
    """Before anything else: a process of one thread stays on one core."""
    import torch

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    torch.set_num_threads(threads)
    if threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def time_in_turn(arguments: argparse.Namespace) -> dict[str, Any]:
    """What one process measures: rounds of all contenders and of the matrix products."""
    import measure

    size = SIZES[arguments.size]
    steps = matrix_products()
    for name in arguments.contenders:
        steps[name] = CONTENDERS[name](size, not arguments.no_xla)
    timings = measure.in_turn(steps, rounds=arguments.rounds)
    return {name: dataclasses.asdict(timing) for name, timing in timings.items()}


def peak_memory(arguments: argparse.Namespace) -> dict[str, Any]:
    """What one process of one contender takes: in all, and beyond what it took to import."""
    (name,) = arguments.contenders
    import keras  # noqa: F401

    if name.startswith("torch"):
        import torch

        torch.ones(2) @ torch.ones(2)
    before = _resident_mib()
    step = CONTENDERS[name](SIZES[arguments.size], not arguments.no_xla)
    for _ in range(4):
        step()
    in_all = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {name: {"peak_mib": in_all, "peak_beyond_imports_mib": in_all - before}}


def _resident_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s*(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def flops_of_the_program(size: Size) -> int:
    """Floating-point operations of the matrix products in the program that XLA gets for a step."""
    import keras
    import tensorflow as tf

    from keras_addnorm.models import Seq2SeqTransformer

    made: list[Seq2SeqTransformer] = []
    make = Seq2SeqTransformer.compile
    Seq2SeqTransformer.compile = lambda model, *a, **k: made.append(model) or make(model, *a, **k)
    try:
        ours(size, jit_compile=True)
    finally:
        Seq2SeqTransformer.compile = make
    (model,) = made
    model.make_train_function()
    batch = keras.tree.map_structure(tf.constant, batch_of(size))
    step = tf.function(model.train_step, jit_compile=True, autograph=False)
    return flops_of_products(step.experimental_get_compiler_ir(batch)(stage="hlo"))


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
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--no-xla", action="store_true", help="TensorFlow without XLA")
    parser.add_argument("--rounds", type=int, default=8, help="timed steps of each in a process")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--no-memory", action="store_true", help="leave out the memory")
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--check-flops", action="store_true", help="only compare the two counts")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    arguments = parser.parse_args()

    if arguments.check_flops:
        counted, found = flops(SIZES[arguments.size]), flops_of_the_program(SIZES[arguments.size])
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
        allocator = NO_XLA_ALLOCATOR if arguments.no_xla else ALLOCATOR
        subprocess.run(command, check=True, env={**os.environ, **allocator})
        return json.loads(result.read_text(encoding="utf-8"))


def report(arguments: argparse.Namespace) -> None:
    """Measure, print a table for the documents, write the figures down."""
    import measure

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

    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    backend += ", no XLA" if arguments.no_xla else ", XLA"
    size = SIZES[arguments.size]
    print(markdown(arguments, backend, timings, memory))
    if arguments.json:
        figures = {
            "size": dataclasses.asdict(size),
            "flops": flops(size),
            "backend": backend,
            "threads": arguments.threads,
            "rounds": rounds,
            "figures": timings,
            "memory": memory,
        }
        measure.write_json(arguments.json, figures)


def markdown(
    arguments: argparse.Namespace,
    backend: str,
    timings: dict[str, Any],
    memory: dict[str, dict[str, float]],
) -> str:
    """The table of a size, as the documents have it; with one thread, of processor time."""
    size = SIZES[arguments.size]
    by_processor = arguments.threads == 1
    kind = "smallest processor time" if by_processor else "median wall time"
    key = "best_cpu_ms" if by_processor else "median_ms"
    floor_of_peak = min(getattr(timings[name], key) for name in ("peak: torch", "peak: keras"))
    peak = 2 * PEAK_SIDE**3 / floor_of_peak / 1e6
    floor = flops(size) / peak / 1e6
    first = getattr(timings[arguments.contenders[0]], key)
    lines = [
        f"{arguments.size}, {backend}, {arguments.threads} threads: {kind} of "
        f"{arguments.processes} x {arguments.rounds} steps. Products: {flops(size) / 1e9:.1f} GFLOP"
        f" a step; peak {peak:.0f} GFLOP/s; floor {floor:.0f} ms.",
        "",
        f"| | {kind}, ms | / {arguments.contenders[0]} | share of peak | median processor ms "
        "| busy cores | peak memory, MiB | beyond imports |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in arguments.contenders:
        timing, used = timings[name], memory.get(name, {})
        time = getattr(timing, key)
        lines.append(
            f"| {name} | {time:.0f} | {time / first:.2f} | {floor / time:.0%} "
            f"| {timing.median_cpu_ms:.0f} | {timing.busy_cores:.2f} "
            f"| {used.get('peak_mib', float('nan')):.0f} "
            f"| {used.get('peak_beyond_imports_mib', float('nan')):.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
