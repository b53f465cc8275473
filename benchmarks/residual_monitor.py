"""What `ResidualMonitor` costs: training time with and without it, in turn in one process.

One model ("tiny") trains on under XLA, with the monitor and without it in turn; the monitor logs
every N-th step to CSV and TensorBoard. A round is N steps, so each monitored round holds one pass
of the probe. Compilation, which happens once, is timed by itself: the training's falls into the
first round without, the probe's into the first round with it. Processor time counts all
threads: on a busy machine its ratio is the steadier one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import keras
import measure
import numpy as np

from keras_addnorm.diagnostics import ResidualMonitor
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

VOCABULARY_SIZE = 6000


def batch(rows: int, length: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    source, target, labels = np.random.default_rng(3).integers(
        3, VOCABULARY_SIZE, (3, rows, length), dtype="int32"
    )
    return {"source": source, "target": target}, labels


def compiled_model(scheme: str) -> Seq2SeqTransformer:
    keras.utils.set_random_seed(7)
    model = Seq2SeqTransformer(
        Seq2SeqConfig.preset(
            "tiny",
            source_vocabulary_size=VOCABULARY_SIZE,
            target_vocabulary_size=VOCABULARY_SIZE,
            share_embeddings=True,
            scheme=scheme,
        )
    )
    model.compile(
        keras.optimizers.Adam(1e-4), MaskedSparseCategoricalCrossentropy(0.1), jit_compile=True
    )
    return model


def training(
    model: Seq2SeqTransformer, rows: int, length: int, steps: int, callbacks: list[ResidualMonitor]
) -> Callable[[], None]:
    inputs, labels = keras.tree.map_structure(
        lambda array: np.tile(array, (steps, 1)), batch(rows, length)
    )

    def round_() -> None:
        model.fit(
            inputs, labels, batch_size=rows, shuffle=False, verbose=0, callbacks=list(callbacks)
        )

    return round_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=int, default=100, help="N")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=128, help="sentences in a training batch")
    parser.add_argument("--length", type=int, default=32, help="tokens in a sentence")
    parser.add_argument("--probe-rows", type=int, default=16, help="sentences in the probe batch")
    parser.add_argument("--scheme", default="pre_ln")
    parser.add_argument("--json", help="file for the figures")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        monitor = ResidualMonitor(
            batch(arguments.probe_rows, arguments.length),
            every=arguments.every,
            csv=Path(folder, "residuals.csv"),
            tensorboard=Path(folder, "tensorboard"),
        )
        model = compiled_model(arguments.scheme)
        sizes = (arguments.rows, arguments.length, arguments.every)
        contenders = {
            "without": training(model, *sizes, []),
            "with": training(model, *sizes, [monitor]),
        }
        first: dict[str, float] = {}
        for name, contender in contenders.items():
            cpu = time.process_time()
            contender()
            first[name] = time.process_time() - cpu
        timings = measure.in_turn(contenders, rounds=arguments.rounds, warm_up=0)
    plain, watched = timings["without"], timings["with"]
    ratios = {
        "wall": watched.median_ms / plain.median_ms,
        "cpu": watched.median_cpu_ms / plain.median_cpu_ms,
    }
    print(f"Rounds of {arguments.every} steps, one probe a monitored round:")
    print(measure.table(timings, "without"))
    print(f"The monitor costs {ratios['wall'] - 1:+.2%} of wall time, ", end="")
    print(f"{ratios['cpu'] - 1:+.2%} of processor time.")
    print(f"First rounds, with compilation: {first['without']:.1f} s without, ", end="")
    print(f"{first['with']:.1f} s with it (processor time). Traces: {monitor.traces}.")
    if arguments.json:
        measure.write_json(arguments.json, {**timings, "ratio": ratios, "first_cpu_s": first})


if __name__ == "__main__":
    main()
