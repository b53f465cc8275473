"""On a GPU, with JAX and without TensorFlow: training steps, flash attention, decoding, a training.

    python benchmarks/gpu.py --json gpu.json                  # steps and decoding: a few minutes
    python benchmarks/gpu.py --train multi30k                 # examples/multi30k_en_de.toml
    python benchmarks/gpu.py --smoke                          # on any machine: does it run?

Training steps are in bfloat16 with weights in float32, on random batches without padding. Each
figure is wall time for one step of many that are started without waiting, as `fit` does. The peak
is what the card reaches in one product of large matrices; model FLOP utilisation is the share of it
that the products of the model take, and counts nothing else.

Only JAX, Keras and this package are needed. keras-hub and torch are compared with where they are
installed; the script says what it leaves out. `--train` reads a folder of parallel text and wants
sentencepiece and sacrebleu, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import re
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
# torch needs memory of the same card.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax_programs
import keras
import measure
import peers

CONFIG = Path(__file__).parents[1] / "examples" / "multi30k_en_de.toml"
# cuDNN's flash attention is called by this name in a compiled program.
FLASH = "fmha"


@dataclasses.dataclass(frozen=True)
class Job:
    """What is measured.

    Attributes:
        sizes: Models whose training steps are timed, by name.
        batch_size: Rows of a training batch.
        length: Tokens of a row, on both sides.
        decoded: The model that decodes.
        searches: Batch size and number of beams.
        steps: Tokens to decode.
        matrix: Width of the matrices whose product gives the peak.
        burst: Steps that are started before one is waited for.
    """

    sizes: dict[str, peers.Size]
    batch_size: int
    length: int
    decoded: peers.Size
    searches: tuple[tuple[int, int], ...]
    steps: int
    matrix: int
    burst: int


_WIDE = {"vocabulary_size": 32_000}
FULL = Job(
    sizes={
        "base": dataclasses.replace(peers.SIZES["base 6+6"], **_WIDE),
        "big": dataclasses.replace(peers.SIZES["big"], **_WIDE),
    },
    batch_size=128,
    length=128,
    decoded=dataclasses.replace(peers.SIZES["base 6+6"], **_WIDE),
    searches=((1, 1), (1, 4), (64, 1), (64, 4), (512, 4)),
    steps=64,
    matrix=8192,
    burst=10,
)
_MINIATURE = peers.Size(1, 16, 24, 2, 50)
SMOKE = Job({"miniature": _MINIATURE}, 2, 8, _MINIATURE, ((2, 2),), 4, 64, 2)


def matrix_product_rate(width: int) -> float:
    """Operations a second of a product in bfloat16."""
    a = jax.numpy.ones((width, width), "bfloat16")
    multiply = jax.jit(lambda x: x @ a)

    def products() -> None:
        x = a
        for _ in range(10):
            x = multiply(x)
        x.block_until_ready()

    timing = measure.in_turn({"": products}, rounds=5)[""]
    return 10 * 2 * width**3 / (timing.best_ms / 1000)


def burst_of(start: Callable[[], Any], wait: Callable[[Any], Any], count: int) -> Callable:
    """Starts so many steps and waits for the last."""

    def burst() -> None:
        for _ in range(count - 1):
            start()
        wait(start())

    return burst


def keras_steps(
    size: peers.Size, batch: peers.Batch, names: Sequence[str]
) -> dict[str, jax_programs.Program]:
    programs = {}
    for name in names:
        keras.utils.set_random_seed(1)
        model = peers.compiled(name, size)
        programs[name] = jax_programs.training_step(model, batch)
    return programs


def torch_steps(
    size: peers.Size, batch: peers.Batch, names: Sequence[str]
) -> dict[str, Callable[[], Any]]:
    import torch

    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_device = tuple(torch.as_tensor(ids, device=device).long() for ids in batch)
    steps = {}
    for name in names:
        step = peers.torch_step(
            peers.torch_model(size, device),
            compiled=name == peers.TORCH_COMPILED,
            device=device,
            dtype="bfloat16",
        )
        steps[name] = lambda step=step: step(on_device)
    return steps


def training_steps(job: Job, name: str, peak: float, wanted: Sequence[str], rounds: int) -> dict:
    """Times the contenders on one size, prints a table, and returns the figures."""
    size = job.sizes[name]
    batch = peers.random_batch(size, job.batch_size, job.length)
    in_keras = [peer for peer in wanted if peer in peers.KERAS_MODELS]
    programs = keras_steps(size, batch, in_keras)
    bursts = {
        peer: burst_of(program.start, jax.block_until_ready, job.burst)
        for peer, program in programs.items()
    }
    in_torch = [peer for peer in wanted if peer.startswith(peers.TORCH)]
    if in_torch:
        for peer, step in torch_steps(size, batch, in_torch).items():
            # Reading the loss waits for the step.
            bursts[peer] = burst_of(step, float, job.burst)
    timings = measure.in_turn(bursts, rounds=rounds)
    flops = size.training_flops(job.batch_size, job.length)
    print(f"\n{name}: {size}, {job.batch_size} × {job.length}, {flops / 1e12:.3g} TFLOP a step")
    print("| | ms a step | tokens/s | utilisation | MB | attention of cuDNN |")
    print("|---|---:|---:|---:|---:|---|")
    figures = {}
    for peer, timing in timings.items():
        seconds = timing.median_ms / job.burst / 1000
        figures[peer] = {
            "ms": 1000 * seconds,
            "tokens_per_second": job.batch_size * job.length / seconds,
            "utilisation": flops / seconds / peak,
        }
        memory = calls = "–"
        if peer in programs:
            figures[peer] |= {"bytes": programs[peer].bytes, "flash": flash_calls(programs[peer])}
            memory = f"{figures[peer]['bytes'] / 1e6:,.0f}"
            calls = f"{len(figures[peer]['flash'])} calls"
        print(
            f"| {peer} | {1000 * seconds:.2f} | {figures[peer]['tokens_per_second']:,.0f} "
            f"| {figures[peer]['utilisation']:.1%} | {memory} | {calls} |"
        )
    return figures


def flash_calls(program: jax_programs.Program) -> list[str]:
    """The custom calls of a compiled program that are flash attention, forward and backward."""
    calls = re.findall(r'custom_call_target="([^"]+)"', program.text)
    return [call for call in calls if FLASH in call]


def decoding(job: Job, rounds: int) -> dict:
    """Tokens a second of searches that make all their steps."""
    print(f"\nDecoding {job.steps} tokens from sources of 32: {job.decoded}")
    print("| batch | beams | ms | tokens/s |\n|---:|---:|---:|---:|")
    keras.utils.set_random_seed(1)
    model = peers.never_ending(peers.ours(job.decoded, max_length=job.steps))
    figures = {}
    for batch_size, num_beams in job.searches:
        source = peers.random_batch(job.decoded, batch_size, 32)[0]
        program = jax_programs.decoding(model, source, num_beams=num_beams, max_length=job.steps)
        timing = measure.in_turn({"": program.run}, rounds=rounds)[""]
        rate = 1000 * batch_size * job.steps / timing.median_ms
        figures[f"{batch_size} × beam {num_beams}"] = {"ms": timing.median_ms, "rate": rate}
        print(f"| {batch_size} | {num_beams} | {timing.median_ms:.1f} | {rate:,.0f} |")
    return figures


def train(folder: Path, epochs: int | None) -> None:
    """Trains as `examples/multi30k_en_de.toml` says, and scores the test set."""
    from keras_addnorm.data import TokenizerPair, load_translation, make_training_batches
    from keras_addnorm.decoding import translate
    from keras_addnorm.models import Seq2SeqTransformer
    from keras_addnorm.runs.optimization import compile_model
    from keras_addnorm.runs.settings import RunConfig
    from keras_addnorm.runs.trained_run import model_config
    from keras_addnorm.training import LastCheckpoints, average_weights, evaluate_translations

    config = RunConfig.from_dict(tomllib.loads(CONFIG.read_text(encoding="utf-8")))
    training = config.training
    found = load_translation(folder, source=config.source, target=config.target)
    pairs = {split: list(some) for split, some in found.items()}
    started = time.perf_counter()
    tokenizers = TokenizerPair.train(pairs["train"], **dataclasses.asdict(config.tokenizer))
    batches = make_training_batches(
        pairs["train"],
        tokenizers,
        **dataclasses.asdict(training.bucketing),
        shuffle_seed=training.seed,
        repeats=2 if training.r_drop else 1,
    )
    keras.utils.set_random_seed(training.seed)
    model = Seq2SeqTransformer(model_config(config, tokenizers))
    compile_model(model, training, len(batches))
    print(f"{model.count_params():,} weights; {batches.report}")
    with tempfile.TemporaryDirectory() as scratch:
        last = LastCheckpoints(scratch, keep=training.average_last)
        model.fit(
            batches, epochs=epochs or training.epochs, shuffle=False, verbose=2, callbacks=[last]
        )
        average_weights(model, last.paths)
    minutes = (time.perf_counter() - started) / 60
    test = next(split for split in pairs if split.startswith("test"))
    sources, references = zip(*pairs[test], strict=True)
    found = translate(
        model,
        tokenizers,
        list(sources),
        num_beams=config.evaluation.num_beams,
        length_penalty=config.evaluation.length_penalty,
        max_length=config.evaluation.max_length,
    )
    print(f"{minutes:.1f} minutes; {test}: {evaluate_translations(found.texts, references)}")


def main(argv: Sequence[str] | None = None) -> None:
    everybody = (*peers.KERAS_MODELS, peers.TORCH, peers.TORCH_COMPILED)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contenders", nargs="+", choices=everybody, default=everybody)
    parser.add_argument("--sizes", nargs="+", choices=FULL.sizes, help="by default both")
    parser.add_argument("--rounds", type=int, default=7, help="timed bursts of steps of each")
    parser.add_argument("--smoke", action="store_true", help="a miniature, to see that it runs")
    parser.add_argument("--train", type=Path, help="a folder of parallel text to train on")
    parser.add_argument("--epochs", type=int, help="instead of the configuration's")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args(argv)
    print(f"{jax.devices()[0].device_kind}; JAX {jax.__version__}, Keras {keras.__version__}")
    if arguments.train:
        train(arguments.train, arguments.epochs)
        return
    job, rounds = (SMOKE, 1) if arguments.smoke else (FULL, arguments.rounds)
    packages = {peers.KERAS_HUB: "keras_hub", peers.TORCH: "torch", peers.TORCH_COMPILED: "torch"}
    missing = [
        peer
        for peer in arguments.contenders
        if peer in packages and importlib.util.find_spec(packages[peer]) is None
    ]
    for peer in missing:
        print(f"Left out: {peer}, which is not installed.")
    wanted = [peer for peer in arguments.contenders if peer not in missing]
    keras.config.set_dtype_policy("mixed_bfloat16")
    peak = matrix_product_rate(job.matrix)
    print(f"A product of {job.matrix} × {job.matrix}: {peak / 1e12:.3g} TFLOP/s")
    figures: dict[str, Any] = {"peak": peak}
    for name in arguments.sizes or job.sizes:
        figures[name] = training_steps(job, name, peak, wanted, rounds)
    figures["decoding"] = decoding(job, rounds)
    if arguments.json:
        measure.write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
