"""A translation of 32 tokens that may have 256: KV caches of that size, or growing ones.

Random weights whose hypotheses never end, as in `decoding.py`, but ids in and ids out: 32 steps of
a search that may take `--room`. The caches have that size from the start, or grow with the output.

python benchmarks/caches.py
python benchmarks/caches.py --cells "tiny 1 " --room 1024
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import decoding
import keras
import measure
import numpy as np
import peers
import tensorflow as tf

from keras_addnorm.decoding import Beam, Greedy, Strategy
from keras_addnorm.decoding.decoder import DecoderInfo
from keras_addnorm.decoding.engine import Engine, TFGraphEngine, XLAEngine
from keras_addnorm.decoding.engine.base import run_until_few
from keras_addnorm.decoding.generate import run_search
from keras_addnorm.decoding.search import FittedSearch, Search
from keras_addnorm.models import Seq2SeqTransformer

WHOLE, GROWING = "whole", "growing"


class WholeCache:
    """Lets an engine begin with all the room, in one loop for all sentences."""

    def run_with_growing_cache(self, growing: Any, state: Any, inputs: Any) -> Any:
        loop = growing.loop_of(inputs)
        return loop.hypotheses(run_until_few(loop, state, 0, inputs.max_length))


class WholeXLAEngine(WholeCache, XLAEngine):
    """With XLA."""


class WholeTFGraphEngine(WholeCache, TFGraphEngine):
    """Without."""


@dataclasses.dataclass(frozen=True)
class Stopped(Strategy):
    """A search that ends after some steps, though it may take more."""

    inner: Greedy | Beam
    steps: int
    room: int

    @property
    def rows_per_sentence(self) -> int:
        return self.inner.rows_per_sentence

    @property
    def rows_per_beam(self) -> int:
        return self.inner.rows_per_beam

    def search(self, model: Any, inputs: Any) -> Any:
        if isinstance(model.engine, WholeCache):
            model = dataclasses.replace(model, cache=model.grow(model.cache, self.room))
        return self.inner.search(model, dataclasses.replace(inputs, max_length=self.steps))


ENGINES = {
    f"XLA, {WHOLE}": WholeXLAEngine(),
    f"XLA, {GROWING}": XLAEngine(),
    f"no XLA, {WHOLE}": WholeTFGraphEngine(),
    f"no XLA, {GROWING}": TFGraphEngine(),
}


def contenders(
    model: Seq2SeqTransformer, cell: decoding.Cell, source: np.ndarray, steps: int, room: int
) -> dict[str, functools.partial[Any]]:
    """Compiled searches, with XLA and without."""
    found = {}
    inner = Greedy() if cell.num_beams == 1 else Beam(cell.num_beams)
    for name, engine in ENGINES.items():
        search = Search(Stopped(inner, steps, room), max_length=room).fitted(DecoderInfo.of(model))

        def find(
            ids: tf.Tensor, search: FittedSearch = search, engine: Engine = engine
        ) -> tf.Tensor:
            return run_search(model, ids, search, engine).ids

        compiled = tf.function(find, jit_compile=isinstance(engine, XLAEngine), autograph=False)
        found[name] = functools.partial(compiled, tf.constant(source))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", default="", help="only cells with this text in their name")
    parser.add_argument("--room", type=int, default=256, help="tokens that a search may take")
    parser.add_argument("--rounds", type=int, default=5, help="timed calls of each contender")
    parser.add_argument("--smoke", action="store_true", help="a miniature: does it run?")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()
    sizes = decoding.SMOKE if arguments.smoke else decoding.SIZES
    figures: dict[str, dict[str, measure.Timing]] = {}
    for cell in decoding.cells(sizes):
        if arguments.cells not in cell.name:
            continue
        keras.utils.set_random_seed(1)
        size = sizes[cell.size]
        model = peers.never_ending(peers.ours(size, max_length=arguments.room))
        rng = np.random.default_rng(3)
        source = rng.integers(4, size.vocabulary_size, (cell.batch_size, decoding.SOURCE_LENGTH))
        calls = contenders(model, cell, source.astype("int32"), decoding.STEPS, arguments.room)
        first, *others = (call().numpy() for call in calls.values())
        assert all(np.array_equal(first, other) for other in others), cell.name
        figures[cell.name] = measure.in_turn(calls, rounds=arguments.rounds, warm_up=1)
        print(cell.name, measure.table(figures[cell.name], f"XLA, {GROWING}"), sep="\n", flush=True)
    kinds = list(next(iter(figures.values())))
    print(
        f"\n| {decoding.STEPS} steps, room for {arguments.room}, ms | " + " | ".join(kinds) + " |"
    )
    print("|---" + "|---:" * len(kinds) + "|")
    for name, timings in figures.items():
        print(f"| {name} | " + " | ".join(f"{timings[k].median_ms:.1f}" for k in kinds) + " |")
    if arguments.json:
        measure.write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
