"""A trained run translates real sentences: our SavedModel (XLA and not) and CTranslate2, in turn.

Unlike the 32 forced steps of `decoding.py`, translations are as long as they are, and the export
has room for as many tokens as the model allows, 256 unless the run says otherwise. Sentences of
like length are in one batch. CTranslate2 is timed with one thread and with one for each core, and
the faster counts; the share of sentences that come out equal is printed.

python benchmarks/translation.py --run-dir runs/mine --split validation
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import decoding
import measure
import numpy as np
import tensorflow as tf
from ctranslate2_peer import Peer, Translation

from keras_addnorm.decoding import Beam, Greedy, Strategy
from keras_addnorm.interop import export_ctranslate2
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.text_data import load_texts
from keras_addnorm.runs.trained_run import TrainedRun, load_run
from keras_addnorm.serving import export_saved_model


@dataclasses.dataclass(frozen=True)
class Search:
    """A search over batches of sentences, for all contenders the same."""

    batches: list[list[str]]
    num_beams: int
    longest: int

    @property
    def name(self) -> str:
        return f"{len(self.batches[0])} × {signature_name(self.num_beams)}"

    def ours(self, signature: Callable[..., dict[str, tf.Tensor]]) -> list[str]:
        return [text for batch in self.batches for text in decoding.ours(signature, batch)[0]]

    def theirs(self, peer: Peer) -> list[str]:
        return [text for one in self._translations for text in decoding.theirs(peer, one)[0]]

    def peers_clock(self, peer: Peer) -> measure.OwnClock:
        """All batches; the peer takes its time of each."""
        calls = [peer.contender(one) for one in self._translations]

        def run() -> tuple[float, float]:
            walls, cpus = zip(*(call() for call in calls), strict=True)
            return sum(walls), sum(cpus)

        return measure.OwnClock(run)

    @property
    def _translations(self) -> list[Translation]:
        return [Translation(batch, self.num_beams, self.longest) for batch in self.batches]


def strategy(num_beams: int) -> Strategy:
    """What CTranslate2 does without a length penalty: it ends when nothing better can come."""
    return Beam(num_beams) if num_beams > 1 else Greedy()


def signature_name(num_beams: int) -> str:
    return f"beam_{num_beams}" if num_beams > 1 else "greedy"


def sentences(run: TrainedRun, split: str, count: int) -> list[str]:
    """Some sentences from all over a split, by their number of tokens."""
    texts = load_texts(run.config, split)[0]
    chosen = texts[:: max(1, len(texts) // count)][:count]
    return sorted(chosen, key=lambda text: len(run.tokenizers.source.encode(text)))


def time_search(
    search: Search, signatures: Mapping[str, Any], peers: list[Peer], rounds: int
) -> dict[str, measure.Timing]:
    """Compare the translations, then take the times; of the peers the faster one counts."""
    name = signature_name(search.num_beams)
    own = {
        kind: functools.partial(search.ours, signatures[name + ending])
        for kind, ending in ((decoding.OURS, "_xla"), (decoding.OURS_NO_XLA, ""))
    }
    expected = search.theirs(peers[0])
    for kind, translate in own.items():
        equal = np.mean([a == b for a, b in zip(translate(), expected, strict=True)])
        print(f"  {kind}: {equal:.1%} of the translations are CTranslate2's")
    ways = {peer.name: search.peers_clock(peer) for peer in peers}
    timings = measure.in_turn(own | ways, rounds=rounds, warm_up=1)
    best = min(ways, key=lambda way: timings[way].median_ms)
    print(measure.table(timings, best), flush=True)
    return {**{kind: timings[kind] for kind in own}, decoding.THEIRS: timings[best]}


def markdown(figures: Mapping[str, Mapping[str, measure.Timing]], count: int) -> str:
    """Sentences a second, and the time of ours in shares of CTranslate2's."""
    kinds = (decoding.OURS, decoding.OURS_NO_XLA, decoding.THEIRS)
    lines = ["| sentences/s | " + " | ".join(kinds) + " | XLA: × float32 | no XLA: × float32 |"]
    lines.append("|---" + "|---:" * (len(kinds) + 2) + "|")
    for cell, timings in figures.items():
        medians = [timings[kind].median_ms for kind in kinds]
        rates = [f"{1000 * count / ms:,.1f}" for ms in medians]
        ratios = [f"{ms / medians[-1]:.2f}" for ms in medians[:-1]]
        lines.append(f"| {cell} | " + " | ".join(rates + ratios) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run-dir", type=Path, required=True, help="a run of `train`")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--sentences", type=int, default=320)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--num-beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--max-length", type=int, help="the model's, unless given")
    parser.add_argument("--rounds", type=int, default=5, help="timed passes over the sentences")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()

    run = load_run(RunDirectory(arguments.run_dir))
    texts = sentences(run, arguments.split, arguments.sentences)
    longest = arguments.max_length or run.model.config.max_length
    figures: dict[str, dict[str, measure.Timing]] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        export_ctranslate2(run.model, run.tokenizers, folder / "ctranslate2")
        path = export_saved_model(
            run.model,
            run.tokenizers,
            folder / "saved_model",
            strategies={signature_name(n): strategy(n) for n in arguments.num_beams},
            max_length=longest,
            batch_buckets=arguments.batch_sizes,
        )
        signatures = tf.saved_model.load(str(path)).signatures
        peers = [
            stack.enter_context(Peer(folder / "ctranslate2", "float32", threads))
            for threads in sorted({1, os.cpu_count() or 1})
        ]
        for size in arguments.batch_sizes:
            batches = [texts[start : start + size] for start in range(0, len(texts), size)]
            for num_beams in arguments.num_beams:
                search = Search(batches, num_beams, longest)
                print(search.name)
                figures[search.name] = time_search(search, signatures, peers, arguments.rounds)
    print(f"\n{len(texts)} sentences of {arguments.split!r}, room for {longest} tokens")
    print(markdown(figures, len(texts)))
    if arguments.json:
        measure.write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
