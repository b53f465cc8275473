"""How well an epoch is shuffled: our batches beside a uniform permutation and a shuffle buffer.

Each pair of a made-up corpus spells its own number, its place in the corpus, in its first tokens,
so that the order is read from the batches themselves. Of an order p of n places it prints

- drift: the correlation of place in the epoch and place in the corpus, times sqrt(n - 1);
- again: the same between two epochs. Of uniform permutations both are normal numbers (0, 1); ours
  move pairs a batch at a time, so that the second is larger where batches are few;
- neighbours: the mean distance |p(i) - p(i + 1)| of pairs that follow each other, over its
  expectation (n + 1) / 3;
- spread: the mean standard deviation of the places in a batch, over that of all places;
- mates: how many pairs of pairs share a batch in both epochs, over what chance gives. Batches hold
  pairs of like length, so that of ours it is about the number of buckets.

    python benchmarks/shuffling.py --pairs 100000
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from keras_addnorm.data import ByteTokenizer
from keras_addnorm.data.batching import Batching
from keras_addnorm.data.corpus import TokenizedPairs
from keras_addnorm.data.epochs import Epochs
from keras_addnorm.data.token_rows import TokenRows

_BASE, _FIRST, _DIGITS, _FILLER = 200, 10, 4, 5
Order = list[np.ndarray]  # The places of the pairs in each batch.


def epochs_of(pairs: int, seed: int = 1) -> Epochs:
    """Pairs of 4 to 40 tokens whose first four are their number."""
    lengths = np.random.default_rng(seed).integers(_DIGITS, 41, pairs)
    digits = np.arange(pairs)[:, None] // _BASE ** np.arange(_DIGITS) % _BASE + _FIRST
    rows = [
        [*number, *[_FILLER] * (length - _DIGITS)]
        for number, length in zip(digits.tolist(), lengths.tolist(), strict=True)
    ]
    tokenized = TokenizedPairs(TokenRows.from_rows(rows), TokenRows.from_rows(rows))
    return Epochs.from_texts(tokenized, ByteTokenizer(), Batching(shuffle_seed=seed))


def order_of(epochs: Epochs, epoch: int) -> Order:
    """The places of the pairs in the corpus, batch by batch, as they are read from the batches."""
    places = []
    for inputs, *_ in epochs.batches(epoch):
        digits = np.asarray(inputs["source"])[:, :_DIGITS].astype(np.int64)
        digits = digits[digits[:, 0] >= _FIRST] - _FIRST  # Without rows of padding.
        places.append(digits @ _BASE ** np.arange(_DIGITS))
    return places


def uniform(sizes: Sequence[int], seed: int) -> Order:
    """A uniform permutation, cut into batches of these sizes."""
    return _cut(np.random.default_rng(seed).permutation(sum(sizes)), sizes)


def buffered(sizes: Sequence[int], seed: int, buffer: int) -> Order:
    """A stream through a shuffle buffer, as that of `tf.data`, cut into batches of these sizes."""
    return _cut(np.fromiter(_through_buffer(sum(sizes), seed, buffer), np.int64), sizes)


def _through_buffer(count: int, seed: int, size: int) -> Iterator[int]:
    size = min(size, count)
    held, generator = np.arange(size), np.random.default_rng(seed)
    for new, slot in zip(
        range(size, count), generator.integers(0, size, count - size), strict=True
    ):
        yield held[slot]
        held[slot] = new
    yield from generator.permutation(held)


def _cut(order: np.ndarray, sizes: Sequence[int]) -> Order:
    return np.split(order, np.cumsum(sizes)[:-1])


def figures(first: Order, second: Order) -> dict[str, float]:
    """What the script prints of two epochs."""
    one = np.concatenate(first)
    count = len(one)
    if not np.array_equal(np.sort(one), np.arange(count)):
        raise ValueError("An epoch does not have each pair once.")
    root = (count - 1) ** 0.5
    place_of = np.empty((2, count), np.int64)
    batch_of = np.empty((2, count), np.int64)
    for epoch, order in enumerate((first, second)):
        place_of[epoch, np.concatenate(order)] = np.arange(count)
        numbers = np.repeat(np.arange(len(order)), [len(batch) for batch in order])
        batch_of[epoch, np.concatenate(order)] = numbers
    sizes = [np.bincount(batches) for batches in batch_of]
    together = np.unique(batch_of, axis=1, return_counts=True)[1]
    pairs_of = [float((size * (size - 1.0)).sum()) for size in (*sizes, together)]
    spread = [batch.std() for batch in first if len(batch) > 1]
    weights = [len(batch) for batch in first if len(batch) > 1]
    return {
        "drift": root * float(np.corrcoef(one, np.arange(count))[0, 1]),
        "again": root * float(np.corrcoef(*place_of)[0, 1]),
        "neighbours": float(np.abs(np.diff(one)).mean() / ((count + 1) / 3)),
        "spread": float(np.average(spread, weights=weights) / (count / 12**0.5)),
        "mates": pairs_of[2] / (pairs_of[0] * pairs_of[1] / (count * (count - 1.0))),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--buffer", type=int, default=10_000)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    options = parser.parse_args(argv)
    epochs = epochs_of(options.pairs)
    ours = [order_of(epochs, epoch) for epoch in (0, 1)]
    sizes = [len(batch) for batch in ours[0]]
    contenders = {
        "keras-addnorm": ours,
        "uniform permutation": [uniform(sizes, seed) for seed in (1, 2)],
        f"buffer of {options.buffer:,}": [buffered(sizes, seed, options.buffer) for seed in (1, 2)],
    }
    found = {name: figures(*orders) for name, orders in contenders.items()}
    names = list(next(iter(found.values())))
    print("| | " + " | ".join(names) + " |\n|---|" + "---:|" * len(names))
    for name, row in found.items():
        print(f"| {name} | " + " | ".join(f"{row[key]:.2f}" for key in names) + " |")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
