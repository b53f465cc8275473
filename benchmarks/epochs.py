"""Real target tokens a second through whole epochs, the data pipeline included.

Padding is what a step's time hides: a batch that is half padding trains half as much. Here each
contender trains the same model on the same sentence pairs with the batches that its own manual
recommends, and what counts is the number of target tokens that are not padding.

- **keras-addnorm**: `make_training_dataset` with lengths that it fits to the sentences, and `fit`,
  as `keras-addnorm train` does.
- **keras-addnorm, given lengths**: the same with five lengths that know nothing of the sentences.
- **keras-hub**: its blocks, and the pipeline of its translation guide: sentences padded to a fixed
  length in batches of fixed size, `shuffle(2048).prefetch(16).cache()`. `fit`, XLA.
- **keras-hub, our batches**: the same blocks with our pipeline: what is left is the step.
- **torch**: `nn.Transformer`, eager, with batches of a number of tokens made of sentences of like
  length, as fairseq and Joey NMT train.

The second table says where an epoch of ours spends its time: in the compiled step, in Keras' loop
around it, in the pipeline; and what tokenising cost before the first epoch.

    python benchmarks/epochs.py                                   # the built-in set
    python benchmarks/epochs.py --data multi30k --source en --target de --pairs 8000
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import measure
import numpy as np
import peers
import tensorflow as tf

from keras_addnorm.data import TokenizerPair, load_translation, make_training_dataset
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.data.vocabulary import END_ID, PAD_ID, START_ID

TOKENS_PER_BATCH = 4096
GIVEN_LENGTHS = (16, 24, 32, 48, 64)
MAX_LENGTH = GIVEN_LENGTHS[-1]
# keras.io's guide to translation with keras-hub.
GUIDE_LENGTH, GUIDE_BATCH = 40, 64

OURS_GIVEN_LENGTHS, HUB, HUB_OUR_BATCHES, TORCH = PEERS = (
    f"{peers.OURS}, given lengths",
    peers.KERAS_HUB,
    f"{peers.KERAS_HUB}, our batches",
    f"{peers.TORCH}, token batches",
)
EPOCH, LOOP, PIPELINE = "epoch", "Keras' loop around the step", "pipeline, in its own thread"
TOKENISING = "tokenising, once before the first epoch"

Pairs = Sequence[tuple[str, str]]
Sentences = list[tuple[list[int], list[int]]]


class Contender(Protocol):
    """One way to train.

    Attributes:
        tokens: Target tokens of an epoch, end tokens included, padding not.
        positions: The same with padding.
    """

    tokens: int
    positions: int

    def epoch(self) -> None:
        """Trains once on all sentences."""


def bucketed(
    pairs: Pairs, tokenizers: TokenizerPair, lengths: Sequence[int] | None = None
) -> tf.data.Dataset:
    """Our pipeline: with lengths that fit the sentences, or with these."""
    return make_training_dataset(
        pairs,
        tokenizers,
        tokens_per_batch=TOKENS_PER_BATCH,
        bucket_lengths=lengths,
        max_length=MAX_LENGTH,
        shuffle_seed=1,
    )


def fixed_length(sentences: Sentences) -> tf.data.Dataset:
    """The guide's pipeline, on ids: its tokenizer would be one more difference."""
    source = _padded([row for row, _ in sentences], GUIDE_LENGTH)
    target = _padded([[START_ID, *row] for _, row in sentences], GUIDE_LENGTH + 1)
    dataset = tf.data.Dataset.from_tensor_slices((source, target)).batch(GUIDE_BATCH)
    dataset = dataset.map(
        lambda source, target: ({"source": source, "target": target[:, :-1]}, target[:, 1:]),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return dataset.shuffle(2048).prefetch(16).cache()


def _padded(rows: list[list[int]], length: int) -> np.ndarray:
    """Rows with their end tokens, cut where they are too long."""
    out = np.full((len(rows), length), PAD_ID, np.int32)
    for line, row in zip(out, rows, strict=True):
        kept = [*row, END_ID][:length]
        line[: len(kept)] = kept
    return out


def token_batches(sentences: Sentences) -> list[list[int]]:
    """Which sentences share a batch: of like length, at most so many positions on a side."""
    longest = [max(len(source), len(target)) + 1 for source, target in sentences]
    batches: list[list[int]] = [[]]
    for index in sorted(range(len(sentences)), key=longest.__getitem__):
        if (len(batches[-1]) + 1) * longest[index] > TOKENS_PER_BATCH:
            batches.append([])
        batches[-1].append(index)
    return batches


class KerasTraining:
    """`fit` of a compiled model on a data set."""

    def __init__(self, model: keras.Model, dataset: tf.data.Dataset) -> None:
        self.model, self.dataset = model, dataset
        labels = [batch[1] for batch in dataset.as_numpy_iterator()]
        self.tokens = sum(int((part != PAD_ID).sum()) for part in labels)
        self.positions = sum(part.size for part in labels)

    def epoch(self) -> None:
        self.model.fit(self.dataset, verbose=0, shuffle=False)


class TorchTraining:
    """Eager torch on batches of a number of tokens."""

    def __init__(self, size: peers.Size, sentences: Sentences) -> None:
        import torch

        torch.manual_seed(1)
        self._step = peers.torch_step(peers.torch_model(size))
        self._sentences, self._batches = sentences, token_batches(sentences)
        self._rng = np.random.default_rng(1)
        labels = [batch[2] for batch in self._collated()]
        self.tokens = sum(int((part != PAD_ID).sum()) for part in labels)
        self.positions = sum(part.numel() for part in labels)

    def epoch(self) -> None:
        for batch in self._collated():
            self._step(batch)

    def _collated(self) -> Iterator[Any]:
        import torch

        for turn in self._rng.permutation(len(self._batches)):
            rows = [self._sentences[index] for index in self._batches[turn]]
            parts = (
                [[*source, END_ID] for source, _ in rows],
                [[START_ID, *target] for _, target in rows],
                [[*target, END_ID] for _, target in rows],
            )
            yield tuple(
                torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in part], True, PAD_ID)
                for part in parts
            )


class StepWatch:
    """Takes the place of a model's training function and adds up the time spent inside."""

    def __init__(self, model: keras.Model) -> None:
        model.make_train_function()
        self._step = model.train_function
        self.wall_ms = self.thread_ms = 0.0
        model.train_function = self

    def __call__(self, iterator: Any) -> Any:
        wall, thread = time.perf_counter(), time.thread_time()
        try:
            return self._step(iterator)
        finally:
            self.wall_ms += 1000 * (time.perf_counter() - wall)
            self.thread_ms += 1000 * (time.thread_time() - thread)


def outside_the_step(training: KerasTraining, rounds: int) -> dict[str, tuple[float, float]]:
    """Wall and processor ms of an epoch, by where they go; the smallest of the rounds.

    The pipeline works in a thread of its own while a step runs, so it costs the epoch wall time
    only where no core is free; its processor time is what it costs on a machine in full use.
    """
    watch = StepWatch(training.model)
    outside: list[tuple[float, float]] = []

    def epoch() -> None:
        watch.wall_ms, watch.thread_ms = 0.0, 0.0
        wall, thread = time.perf_counter(), time.thread_time()
        training.epoch()
        wall, thread = time.perf_counter() - wall, time.thread_time() - thread
        outside.append((1000 * wall - watch.wall_ms, 1000 * thread - watch.thread_ms))

    def pipeline() -> None:
        for _ in training.dataset:
            pass

    timings = measure.in_turn({EPOCH: epoch, PIPELINE: pipeline}, rounds=rounds, warm_up=1)
    figures = {name: (timing.best_ms, timing.best_cpu_ms) for name, timing in timings.items()}
    return figures | {LOOP: (min(wall for wall, _ in outside), min(cpu for _, cpu in outside))}


def throughput_table(contenders: dict[str, Contender], timings: dict[str, measure.Timing]) -> str:
    """The figures of docs/performance.md, in Markdown."""
    lines = [
        "| | real tokens/s | ours × | real tokens a cpu second | ours × | padding | busy cores |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    rates = {
        name: (
            1000 * contender.tokens / timings[name].median_ms,
            1000 * contender.tokens / timings[name].best_cpu_ms,
        )
        for name, contender in contenders.items()
    }
    ours = rates[peers.OURS]
    lines += [
        f"| {name} | {wall:,.0f} | {ours[0] / wall:.2f} | {cpu:,.0f} | {ours[1] / cpu:.2f} "
        f"| {1 - contenders[name].tokens / contenders[name].positions:.0%} "
        f"| {timings[name].busy_cores:.2f} |"
        for name, (wall, cpu) in rates.items()
    ]
    return "\n".join(lines)


def share_table(figures: dict[str, tuple[float, float]]) -> str:
    """What is not the compiled step, in shares of an epoch."""
    wall, cpu = figures[EPOCH]
    lines = ["| of an epoch of ours | wall | processor |", "|---|---:|---:|"]
    lines += [
        f"| {name} | {figures[name][0] / wall:.2%} | {figures[name][1] / cpu:.2%} |"
        for name in (LOOP, PIPELINE, TOKENISING)
    ]
    return "\n".join(lines)


def load_pairs(arguments: argparse.Namespace) -> tuple[Pairs, Pairs]:
    """All training pairs, for the tokenizer, and those that are trained on."""
    dataset = load_translation(
        arguments.data or "demo/en-de",
        source=arguments.source,
        target=arguments.target,
        split="train",
    )
    everything = list(itertools.islice(string_pairs(dataset), 400 if arguments.smoke else 30_000))
    return everything, everything[: arguments.pairs]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="a folder of parallel text; by default the built-in set")
    parser.add_argument("--source", help="the language to translate from")
    parser.add_argument("--target", help="the language to translate into")
    parser.add_argument("--pairs", type=int, default=4000, help="sentence pairs of an epoch")
    parser.add_argument("--size", choices=peers.SIZES, default="tiny")
    parser.add_argument("--vocabulary-size", type=int, help="by default 6000; built-in set 1000")
    parser.add_argument("--rounds", type=int, default=5, help="timed epochs of each")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--smoke", action="store_true", help="a round of a model without use")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args(argv)
    if arguments.smoke:
        arguments.pairs, arguments.rounds = 40, 1
        arguments.vocabulary_size = 300
    vocabulary_size = arguments.vocabulary_size or (6000 if arguments.data else 1000)
    fitted, given = ((MAX_LENGTH,),) * 2 if arguments.smoke else (None, GIVEN_LENGTHS)

    everything, pairs = load_pairs(arguments)
    tokenizers = TokenizerPair.train(everything, vocabulary_size=vocabulary_size, kind="bpe")
    size = dataclasses.replace(peers.SIZES[arguments.size], vocabulary_size=vocabulary_size)
    if arguments.smoke:
        size = peers.Size(1, 8, 12, 2, vocabulary_size)
    wall, cpu = time.perf_counter(), time.process_time()
    dataset = bucketed(pairs, tokenizers, fitted)
    tokenising = 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)
    print(f"{size}\n{dataset.report}")
    sentences = [
        (tokenizers.source.encode(source), tokenizers.target.encode(target))
        for source, target in pairs
    ]
    sentences = [pair for pair in sentences if max(map(len, pair)) < MAX_LENGTH]

    def in_keras(name: str, data: tf.data.Dataset) -> KerasTraining:
        keras.utils.set_random_seed(1)
        return KerasTraining(peers.compiled(name, size, jit_compile=not arguments.smoke), data)

    ours = in_keras(peers.OURS, dataset)
    makers: dict[str, Callable[[], Contender]] = {
        HUB: lambda: in_keras(peers.KERAS_HUB, fixed_length(sentences)),
        OURS_GIVEN_LENGTHS: lambda: in_keras(peers.OURS, bucketed(pairs, tokenizers, given)),
        HUB_OUR_BATCHES: lambda: in_keras(peers.KERAS_HUB, bucketed(pairs, tokenizers, fitted)),
        TORCH: lambda: TorchTraining(size, sentences),
    }
    contenders: dict[str, Contender] = {peers.OURS: ours}
    contenders |= {name: makers[name]() for name in arguments.peers}
    timings = measure.in_turn(
        {name: contender.epoch for name, contender in contenders.items()},
        rounds=arguments.rounds,
        warm_up=1,
    )
    shares = outside_the_step(ours, arguments.rounds) | {TOKENISING: tokenising}
    print(f"\n{throughput_table(contenders, timings)}\n\n{share_table(shares)}")
    if arguments.json:
        tokens = {name: contender.tokens for name, contender in contenders.items()}
        measure.write_json(arguments.json, {"tokens": tokens, "epochs": timings, "ours": shares})


if __name__ == "__main__":
    main()
