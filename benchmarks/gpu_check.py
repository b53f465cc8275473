"""What a GPU does that a CPU cannot show: fused attention, steps, the loss of a large vocabulary.

    python benchmarks/gpu_check.py           # on a GPU with JAX: about three minutes
    python benchmarks/gpu_check.py --plan    # on any machine: what is compiled, and its memory

The steps are those of `fit`: the model's own `train_step` with loss, metrics and optimiser, in
bfloat16 with weights in float32, with padding. For each vocabulary, with whole logits and with
chunks, it prints the temporary memory of the compiled step, how many of its calls are cuDNN's flash
attention, its products by the types of their operands, and the median time of a step.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import time
from collections.abc import Sequence
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import keras
import numpy as np

from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedAccuracy, MaskedSparseCategoricalCrossentropy, Perplexity

FLASH = "fmha"


def compiled_step(model: Any, data: Any) -> tuple[Any, Any, Any]:
    """The lowered and the compiled step of `fit`, and the state that it begins with."""
    model._symbolic_build(data_batch=data)
    model.optimizer.build(model.trainable_variables)
    state = tuple(
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )
    lowered = jax.jit(model.train_step, donate_argnums=0).lower(state, data)
    return lowered, lowered.compile(), state


def batch(vocabulary_size: int, rows: int, length: int) -> Any:
    """Inputs and labels of random ids; the last eighth of each row is padding."""
    generator = np.random.default_rng(1)
    source, labels = generator.integers(3, vocabulary_size, (2, rows, length), dtype="int32")
    real = np.arange(length) < length - length // 8
    target = np.concatenate([np.full((rows, 1), 1), labels[:, :-1]], axis=1)
    source, target, labels = (
        jax.numpy.asarray(np.where(real, ids, 0), "int32") for ids in (source, target, labels)
    )
    return {"source": source, "target": target}, labels


def products(text: str) -> dict[str, int]:
    """How many products of a lowered program have which types of operands and result."""
    found = re.findall(
        r"stablehlo\.dot_general.*: \(tensor<[\dx]*(\w+)>, tensor<[\dx]*(\w+)>\) -> "
        r"tensor<[\dx]*(\w+)>",
        text,
    )
    return dict(collections.Counter("{}·{}→{}".format(*types) for types in found))


def check(arguments: argparse.Namespace, vocabulary_size: int, chunk_size: int) -> None:
    """Prints one row of the table."""
    keras.utils.set_random_seed(1)
    config = Seq2SeqConfig.preset(
        arguments.preset,
        source_vocabulary_size=vocabulary_size,
        target_vocabulary_size=vocabulary_size,
        share_embeddings=True,
        tie_embeddings=not arguments.untied,
        **{f"num_{side}_layers": arguments.layers for side in ("encoder", "decoder")},
    )
    model = Seq2SeqTransformer(config, dtype=arguments.policy)
    model.compile(
        "adam",
        MaskedSparseCategoricalCrossentropy(0.1),
        metrics=[MaskedAccuracy(), Perplexity()],
        vocabulary_chunk_size=chunk_size,
    )
    data = batch(vocabulary_size, arguments.rows, arguments.length)
    lowered, compiled, state = compiled_step(model, data)
    memory = compiled.memory_analysis()
    calls = re.findall(r'custom_call_target="([^"]+)"', compiled.as_text())
    times = []
    for _ in range(0 if arguments.plan else arguments.steps):
        started = time.perf_counter()
        _, state = compiled(state, data)
        jax.block_until_ready(state)
        times.append(1000 * (time.perf_counter() - started))
    cost = compiled.cost_analysis() or {}
    print(
        f"| {vocabulary_size:,} | {chunk_size or 'whole'} "
        f"| {memory.temp_size_in_bytes / 1e6:,.0f} | {memory.argument_size_in_bytes / 1e6:,.0f} "
        f"| {cost.get('flops', 0) / 1e9:,.1f} | {sum(FLASH in call for call in calls)} "
        f"| {products(lowered.as_text())} "
        f"| {f'{np.median(times[1:]):.2f}' if len(times) > 1 else '–'} |",
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", action="store_true", help="compile, and run nothing")
    parser.add_argument("--preset", default="base")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--policy", default="mixed_bfloat16")
    parser.add_argument("--untied", action="store_true", help="an output projection of its own")
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[8_000, 32_000, 250_000])
    parser.add_argument("--chunk", type=int, default=8_192)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args(argv)
    print(f"{jax.devices()[0].device_kind}; JAX {jax.__version__}, Keras {keras.__version__}")
    print("| V | logits | temporary MB | state MB | GFLOP | flash calls | products | ms |")
    print("|---:|---|---:|---:|---:|---:|---|---:|")
    for vocabulary_size in arguments.vocabularies:
        for chunk_size in (0, arguments.chunk):
            if chunk_size < vocabulary_size:
                check(arguments, vocabulary_size, chunk_size)


if __name__ == "__main__":
    main()
