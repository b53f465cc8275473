"""Time of 32 steps: our SavedModel (XLA and not) and CTranslate2 (float32, int8), in turn.

Strings in, strings out: an export of ours, loaded as any client would load it, and the same random
weights and vocabulary in CTranslate2's format, with SentencePiece before and behind it. A text has
31 words of one piece each. The weights are such that no hypothesis ever ends: 32 forced steps.
CTranslate2 is timed with one thread and with one for each core, and the faster counts. Before a
cell is timed, the translations of the three float32 contenders are compared; the script fails at
its end if they differ anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import platform
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import measure
import numpy as np
import peers
import tensorflow as tf
from ctranslate2_peer import Peer, Translation
from sentencepiece import sentencepiece_model_pb2

from keras_addnorm.data import Tokenizer
from keras_addnorm.decoding import Beam, Greedy
from keras_addnorm.interop import export_ctranslate2
from keras_addnorm.models import Seq2SeqTransformer
from keras_addnorm.serving import export_saved_model

STEPS, SOURCE_LENGTH = 32, 32
BATCH_SIZES = (1, 32)
SEARCHES = {1: "greedy", 4: "beam"}  # The names of their signatures, by the number of beams.
OURS, OURS_NO_XLA = "keras-addnorm, XLA", "keras-addnorm, no XLA"
THEIRS, THEIRS_INT8 = "CTranslate2 float32", "CTranslate2 int8"

SIZES = {name: peers.SIZES[name] for name in ("tiny", "base")}
SMOKE = {"miniature": peers.Size(1, 16, 32, 2, 70)}

Found = tuple[list[str], np.ndarray]
"""Translations and their scores."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of the table."""

    size: str
    batch_size: int
    num_beams: int

    @property
    def name(self) -> str:
        search = "greedy" if self.num_beams == 1 else f"beam {self.num_beams}"
        return f"{self.size} {self.batch_size} × {search}"


def cells(sizes: Iterable[str]) -> list[Cell]:
    """All cells of some sizes."""
    return [
        Cell(size, batch_size, num_beams)
        for size in sizes
        for batch_size in BATCH_SIZES
        for num_beams in SEARCHES
    ]


def make_tokenizer(vocabulary_size: int) -> Tokenizer:
    """A vocabulary of words that no text is cut into."""
    proto = sentencepiece_model_pb2.ModelProto()
    for name, kind in (("<pad>", 3), ("<s>", 3), ("</s>", 3), ("<unk>", 2)):
        proto.pieces.add(piece=name, score=0.0, type=kind)
    for number in range(4, vocabulary_size):
        proto.pieces.add(piece=f"\u2581w{number}", score=-1.0, type=1)
    proto.trainer_spec.pad_id = 0
    proto.trainer_spec.bos_id = 1
    proto.trainer_spec.eos_id = 2
    proto.trainer_spec.unk_id = 3
    return Tokenizer(proto.SerializeToString())


def source_texts(size: peers.Size, batch_size: int) -> list[str]:
    """Texts of as many words that there are `SOURCE_LENGTH` tokens with the one of the end."""
    rng = np.random.default_rng(3)
    ids = rng.integers(4, size.vocabulary_size, (batch_size, SOURCE_LENGTH - 1))
    return [" ".join(f"w{token}" for token in row) for row in ids]


def ours(signature: Callable[..., dict[str, tf.Tensor]], texts: list[str]) -> Found:
    found = signature(texts=tf.constant(texts))
    return [text.decode() for text in found["translations"].numpy()], found["scores"].numpy()


def theirs(peer: Peer, translation: Translation) -> Found:
    found = peer.translate(translation)
    return found["translations"], np.array(found["scores"])


def same_texts(reference: Found, other: Found, name: str) -> bool:
    """Whether translations agree, but for hypotheses that are equally good to the last digits."""
    differs = np.array([a != b for a, b in zip(reference[0], other[0], strict=True)])
    is_tie = np.abs(reference[1] - other[1]) < 1e-4 * np.abs(reference[1])
    if np.any(differs):
        ties = f"{np.sum(differs & is_tie)} of them with a tie in the score"
        print(f"  {name}: {np.sum(differs)} of {len(differs)} translations differ, {ties}")
    return not np.any(differs & ~is_tie)


def export_and_load(
    model: Seq2SeqTransformer, tokenizer: Tokenizer, folder: Path, **settings: Any
) -> Any:
    """Our export with a signature for each search, as any client would load it."""
    path = export_saved_model(
        model,
        tokenizer,
        folder,
        strategies={SEARCHES[n]: Greedy() if n == 1 else Beam(n) for n in SEARCHES},
        max_length=STEPS,
        batch_buckets=BATCH_SIZES,
        length_buckets=[SOURCE_LENGTH],
        **settings,
    )
    return tf.saved_model.load(str(path))


@dataclasses.dataclass(frozen=True)
class Exported:
    """One model in both formats, CTranslate2's with one thread and with one for each core."""

    saved_model: Any
    peers: dict[str, list[Peer]]

    @classmethod
    @contextlib.contextmanager
    def make(cls, size: peers.Size) -> Iterator[Exported]:
        keras.utils.set_random_seed(1)
        model = peers.never_ending(peers.ours(size, max_length=STEPS))
        tokenizer = make_tokenizer(size.vocabulary_size)
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            folder = Path(name)
            export_ctranslate2(model, tokenizer, folder / "ctranslate2")
            saved_model = export_and_load(model, tokenizer, folder / "saved_model")
            made = {
                kind: [
                    stack.enter_context(Peer(folder / "ctranslate2", compute_type, threads))
                    for threads in sorted({1, os.cpu_count() or 1})
                ]
                for kind, compute_type in ((THEIRS, "float32"), (THEIRS_INT8, "int8"))
            }
            yield cls(saved_model, made)


def run_cell(
    cell: Cell, exported: Exported, texts: list[str], rounds: int
) -> tuple[dict[str, measure.Timing], bool]:
    """Compare the translations, then take the times; of CTranslate2 the faster one counts."""
    translation = Translation(texts, cell.num_beams, STEPS)
    signatures = exported.saved_model.signatures
    search = SEARCHES[cell.num_beams]
    own = {
        OURS: functools.partial(ours, signatures[f"{search}_xla"], texts),
        OURS_NO_XLA: functools.partial(ours, signatures[search], texts),
    }
    reference = theirs(exported.peers[THEIRS][0], translation)
    agree = [same_texts(reference, run(), name) for name, run in own.items()]
    in_int8 = theirs(exported.peers[THEIRS_INT8][0], translation)[0]
    share = np.mean([a == b for a, b in zip(in_int8, reference[0], strict=True)])
    print(f"  CTranslate2 int8 gives the same translation for {share:.0%} of the texts")

    ways = {
        peer.name: peer.contender(translation) for made in exported.peers.values() for peer in made
    }
    timings = measure.in_turn(own | ways, rounds=rounds, warm_up=2)
    print("  " + ", ".join(f"{way}: {timings[way].median_ms:.1f} ms" for way in ways))
    best = {
        kind: min((timings[peer.name] for peer in made), key=lambda timing: timing.median_ms)
        for kind, made in exported.peers.items()
    }
    return {name: timings[name] for name in own} | best, all(agree)


def markdown(figures: dict[str, dict[str, measure.Timing]]) -> str:
    """The table of docs/performance.md: medians, and ours in shares of CTranslate2's float32."""
    names = (OURS, OURS_NO_XLA, THEIRS, THEIRS_INT8)
    lines = ["| 32 steps, ms | " + " | ".join(names) + " | XLA: × float32 | no XLA: × float32 |"]
    lines.append("|---" * (len(names) + 3) + "|")
    for cell, timings in figures.items():
        medians = [timings[name].median_ms for name in names]
        ratios = [medians[0] / medians[2], medians[1] / medians[2]]
        numbers = [f"{ms:.1f}" for ms in medians] + [f"{ratio:.2f}" for ratio in ratios]
        lines.append(f"| {cell} | " + " | ".join(numbers) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", default="", help="only cells with this text in their name")
    parser.add_argument("--rounds", type=int, default=9, help="timed calls of each contender")
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="of TensorFlow, that share one operation; 0 is one for each core",
    )
    parser.add_argument("--smoke", action="store_true", help="a miniature: does it run?")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    sizes = SMOKE if arguments.smoke else SIZES
    wanted = [cell for cell in cells(sizes) if arguments.cells in cell.name]

    figures: dict[str, dict[str, measure.Timing]] = {}
    disagreements: list[str] = []
    for name in dict.fromkeys(cell.size for cell in wanted):
        with Exported.make(sizes[name]) as exported:
            for cell in (cell for cell in wanted if cell.size == name):
                print(cell.name)
                texts = source_texts(sizes[name], cell.batch_size)
                figures[cell.name], agree = run_cell(cell, exported, texts, arguments.rounds)
                disagreements += [] if agree else [cell.name]
                print(measure.table(figures[cell.name], THEIRS), flush=True)
    print(f"\n{os.cpu_count()} cores, {platform.processor() or platform.machine()}")
    print(markdown(figures))
    if arguments.json:
        measure.write_json(arguments.json, figures)
    if disagreements:
        raise SystemExit(f"Other translations, and not for a tie: {', '.join(disagreements)}")


if __name__ == "__main__":
    main()
