"""Time of 32 steps: our SavedModel (XLA and not) and CTranslate2 (float32, int8), in turn.

Strings in, strings out: an export of ours, loaded as any client would load it, and the same random
weights and vocabulary in CTranslate2's format, with SentencePiece before and behind it. A text has
31 words of one piece each. The weights are such that no hypothesis ever ends: 32 forced steps.
CTranslate2 has the number of threads that a small sweep finds best. Before a cell is timed, the
translations of the three float32 contenders are compared; the script fails at its end if they
differ anywhere.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import platform
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import ctranslate2
import keras
import measure
import numpy as np
import peers
import tensorflow as tf
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from keras_addnorm.data import Tokenizer
from keras_addnorm.decoding.strategies import choose
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


def theirs(
    translator: ctranslate2.Translator,
    pieces: SentencePieceProcessor,
    texts: list[str],
    num_beams: int,
) -> Found:
    results = translator.translate_batch(
        pieces.encode(texts, out_type=str),
        beam_size=num_beams,
        length_penalty=1e-9,
        min_decoding_length=0,
        max_decoding_length=STEPS,
        return_scores=True,
    )
    translations = pieces.decode([result.hypotheses[0] for result in results])
    return translations, np.array([result.scores[0] for result in results])


def same_texts(reference: Found, other: Found, name: str) -> bool:
    """Whether translations agree, but for hypotheses that are equally good to the last digits."""
    differs = np.array([a != b for a, b in zip(reference[0], other[0], strict=True)])
    is_tie = np.abs(reference[1] - other[1]) < 1e-4 * np.abs(reference[1])
    if np.any(differs):
        ties = f"{np.sum(differs & is_tie)} of them with a tie in the score"
        print(f"  {name}: {np.sum(differs)} of {len(differs)} translations differ, {ties}")
    return not np.any(differs & ~is_tie)


def best_threads(path: Path, compute_type: str, call: Callable) -> ctranslate2.Translator:
    """The translator with as many threads as are fastest for this call."""
    translators = {
        threads: ctranslate2.Translator(
            str(path), compute_type=compute_type, inter_threads=1, intra_threads=threads
        )
        for threads in sorted({1, os.cpu_count() or 1})
    }
    timings = measure.in_turn(
        {str(n): functools.partial(call, t) for n, t in translators.items()}, rounds=7, warm_up=2
    )
    best = min(translators, key=lambda threads: timings[str(threads)].median_ms)
    print(f"  CTranslate2 {compute_type}: {best} thread(s)")
    return translators[best]


def export_and_load(
    model: Seq2SeqTransformer, tokenizer: Tokenizer, folder: Path, **settings: Any
) -> Any:
    """Our export with a signature for each search, as any client would load it."""
    path = export_saved_model(
        model,
        tokenizer,
        folder,
        strategies={SEARCHES[beams]: choose(None, beams, 0.0) for beams in SEARCHES},
        max_length=STEPS,
        batch_buckets=BATCH_SIZES,
        length_buckets=[SOURCE_LENGTH],
        **settings,
    )
    return tf.saved_model.load(str(path))


@dataclasses.dataclass(frozen=True)
class Exported:
    """One model in both formats."""

    saved_model: Any
    ctranslate2: Path
    pieces: SentencePieceProcessor

    @classmethod
    def make(cls, size: peers.Size, folder: Path) -> Exported:
        keras.utils.set_random_seed(1)
        model = peers.never_ending(peers.ours(size, max_length=STEPS))
        tokenizer = make_tokenizer(size.vocabulary_size)
        export_ctranslate2(model, tokenizer, folder / "ctranslate2")
        saved_model = export_and_load(model, tokenizer, folder / "saved_model")
        pieces = SentencePieceProcessor(model_proto=tokenizer.proto)
        return cls(saved_model, folder / "ctranslate2", pieces)


def run_cell(
    cell: Cell, exported: Exported, texts: list[str], rounds: int
) -> tuple[dict[str, measure.Timing], bool]:
    """Compare the translations, then take the times."""
    call = functools.partial(theirs, pieces=exported.pieces, texts=texts, num_beams=cell.num_beams)
    signatures = exported.saved_model.signatures
    search = SEARCHES[cell.num_beams]
    contenders = {
        OURS: functools.partial(ours, signatures[f"{search}_xla"], texts),
        OURS_NO_XLA: functools.partial(ours, signatures[search], texts),
        THEIRS: functools.partial(call, best_threads(exported.ctranslate2, "float32", call)),
        THEIRS_INT8: functools.partial(call, best_threads(exported.ctranslate2, "int8", call)),
    }
    reference = contenders[THEIRS]()
    agree = [same_texts(reference, contenders[name](), name) for name in (OURS, OURS_NO_XLA)]
    in_int8 = contenders[THEIRS_INT8]()[0]
    share = np.mean([a == b for a, b in zip(in_int8, reference[0], strict=True)])
    print(f"  CTranslate2 int8 gives the same translation for {share:.0%} of the texts")
    return measure.in_turn(contenders, rounds=rounds, warm_up=1), all(agree)


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
        with tempfile.TemporaryDirectory() as folder:
            exported = Exported.make(sizes[name], Path(folder))
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
