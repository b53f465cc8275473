"""What Keras' quantisation of a trained run costs in quality, and float8 while a model trains.

The first table quantises the run in each way and translates sentences of a split; GPTQ and AWQ
have four bits, groups of 32 and eight windows of 256 ids of training pairs. The second one trains
the run's model from new weights, in float32 and in float8, on the same batches.

python benchmarks/quantized.py runs/demo --sentences 100 --updates 200
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_addnorm.data import make_training_batches
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.text_data import load_texts, run_pairs
from keras_addnorm.runs.trained_run import TrainedRun, load_run
from keras_addnorm.runs.translate import translate_texts
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy, evaluate_translations

PAIRS = 400  # for calibration
TOKENS = 512  # of a batch
LINES = 5  # of the table of a training


def calibration(run: TrainedRun) -> list[np.ndarray]:
    """Training pairs as Keras' calibration reads them: source, end, start, target, end."""
    config, tokenizers = run.model.config, run.tokenizers
    return [
        np.array(
            [
                *tokenizers.source.encode(source),
                config.end_id,
                config.start_id,
                *tokenizers.target.encode(target),
                config.end_id,
            ]
        )
        for source, target in itertools.islice(run_pairs(run.config).training, PAIRS)
    ]


def ways(run: TrainedRun) -> dict[str, dict[str, Any]]:
    """The arguments of `quantize` by name; none for float32."""
    made: dict[str, Any] = {
        "dataset": calibration(run),
        "tokenizer": lambda ids: ids,
        "sequence_length": 256,
        "num_samples": 8,
        "group_size": 32,
    }
    return {
        "float32": {},
        "int8": {"mode": "int8"},
        "int4": {"mode": "int4"},
        "GPTQ": {"config": keras.quantizers.GPTQConfig(**made)},
        "AWQ": {"config": keras.quantizers.AWQConfig(**made)},
    }


def held_out_loss(model: Seq2SeqTransformer, batches: Any) -> float:
    """Cross-entropy of a token, in nats."""
    if not model.compiled:
        model.compile(loss=MaskedSparseCategoricalCrossentropy())
    return float(model.evaluate(batches, verbose=0))


def quantised(run_dir: Path, split: str, sentences: int) -> Iterator[str]:
    """The first table: the quality of the run after each way to quantise it."""
    run = load_run(RunDirectory(run_dir))
    sources, references = (
        texts[:sentences] for texts in load_texts(run.config, split, keep_every_pair=True)
    )
    pairs = list(zip(sources, references, strict=True))
    yield f"| {len(pairs)} sentences of {split!r} | BLEU | exact | loss of a token |"
    yield "|---|---:|---:|---:|"
    for name, options in ways(run).items():
        run = load_run(RunDirectory(run_dir))
        if options:
            run.model.quantize(**options)
        texts = [found.text for found in translate_texts(run, sources)]
        bleu = evaluate_translations(texts, references).bleu
        exact = sum(text == reference for text, reference in zip(texts, references, strict=True))
        batches = make_training_batches(pairs, run.tokenizers, tokens_per_batch=TOKENS)
        yield f"| {name} | {bleu:.2f} | {exact} | {held_out_loss(run.model, batches):.5f} |"


def trained(run_dir: Path, split: str, sentences: int, updates: int) -> Iterator[str]:
    """The second table: held-out losses on the way, in float32 and in float8."""
    run, every = load_run(RunDirectory(run_dir)), max(1, updates // LINES)
    held_out = [texts[:sentences] for texts in load_texts(run.config, split)]
    validation = make_training_batches(
        zip(*held_out, strict=True), run.tokenizers, tokens_per_batch=TOKENS
    )
    training = make_training_batches(
        run_pairs(run.config).training,
        run.tokenizers,
        tokens_per_batch=TOKENS,
        shuffle_seed=1,
        steps_per_epoch=every,
    )
    losses: dict[str, list[float]] = {}
    for name in ("float32", "float8"):
        keras.utils.set_random_seed(1)
        model = Seq2SeqTransformer(run.model.config)
        if name == "float8":
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Invalid quantization mode")  # of embeddings
                model.quantize(name)
        optimizer = keras.optimizers.Adam(0.002, beta_2=0.98, epsilon=1e-9, clipnorm=1.0)
        model.compile(optimizer, MaskedSparseCategoricalCrossentropy(), jit_compile=False)
        fit = model.fit(training, validation_data=validation, epochs=LINES, verbose=0)
        losses[name] = fit.history["val_loss"]
    yield "| updates | loss of a token, float32 | float8 |"
    yield "|---:|---:|---:|"
    for index, (plain, rounded) in enumerate(zip(*losses.values(), strict=True), 1):
        yield f"| {index * every} | {plain:.3f} | {rounded:.3f} |"


def main(run_dir: Path, split: str, sentences: int, updates: int) -> None:
    """Print both tables."""
    for line in quantised(run_dir, split, sentences):
        print(line, flush=True)
    print()
    for line in trained(run_dir, split, sentences, updates):
        print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--updates", type=int, default=200)
    arguments = parser.parse_args()
    main(arguments.run_dir, arguments.split, arguments.sentences, arguments.updates)
