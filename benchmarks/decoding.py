"""Time of decoding 32 tokens: ours (XLA and not) and CTranslate2's (float32 and int8), in turn.

All four run the same random weights, written for CTranslate2 by `export_ctranslate2`, on the same
source sentences of 32 tokens. The weights are such that no hypothesis ever ends: 32 forced steps.
Ours is `model.generate` from NumPy ids to NumPy ids; CTranslate2 gets tokens and returns tokens,
with the number of threads that a small sweep finds best. Before a cell is timed, the tokens of the
three float32 contenders are compared; the script fails at its end if they differ anywhere.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import ctranslate2
import keras
import measure
import numpy as np
import peers
from sentencepiece import sentencepiece_model_pb2

from keras_addnorm.data import Tokenizer
from keras_addnorm.interop import export_ctranslate2
from keras_addnorm.models import Seq2SeqTransformer

STEPS, SOURCE_LENGTH = 32, 32
OURS, OURS_NO_XLA = "keras-addnorm, XLA", "keras-addnorm, no XLA"
THEIRS, THEIRS_INT8 = "CTranslate2 float32", "CTranslate2 int8"


SIZES = {name: peers.SIZES[name] for name in ("tiny", "base")}


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


CELLS = [
    Cell(size, batch_size, num_beams)
    for size in SIZES
    for batch_size in (1, 32)
    for num_beams in (1, 4)
]


def make_tokenizer(vocabulary_size: int) -> Tokenizer:
    """A vocabulary of words that no text is cut into; CTranslate2 needs their names."""
    proto = sentencepiece_model_pb2.ModelProto()
    for name, kind in (("<pad>", 3), ("<s>", 3), ("</s>", 3), ("<unk>", 2)):
        proto.pieces.add(piece=name, score=0.0, type=kind)
    for number in range(4, vocabulary_size):
        proto.pieces.add(piece=f"w{number}", score=-1.0, type=1)
    proto.trainer_spec.pad_id = 0
    proto.trainer_spec.bos_id = 1
    proto.trainer_spec.eos_id = 2
    proto.trainer_spec.unk_id = 3
    return Tokenizer(proto.SerializeToString())


def source_ids(size: peers.Size, batch_size: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    ids = rng.integers(4, size.vocabulary_size, (batch_size, SOURCE_LENGTH)).astype("int32")
    ids[:, -1] = 2
    return ids


def ours(
    model: Seq2SeqTransformer, ids: np.ndarray, num_beams: int, jit_compile: bool
) -> tuple[np.ndarray, np.ndarray]:
    return model.generate(ids, num_beams=num_beams, max_length=STEPS, jit_compile=jit_compile)


def theirs(
    translator: ctranslate2.Translator, words: list[list[str]], num_beams: int
) -> tuple[np.ndarray, np.ndarray]:
    results = translator.translate_batch(
        words,
        beam_size=num_beams,
        length_penalty=1e-9,
        min_decoding_length=0,
        max_decoding_length=STEPS,
        return_scores=True,
    )
    ids = [[int(word.removeprefix("w")) for word in result.hypotheses[0]] for result in results]
    return np.array(ids), np.array([result.scores[0] for result in results])


def same_tokens(reference: tuple, other: tuple, name: str) -> bool:
    """Whether tokens agree, but for hypotheses that are equally good to the last digits."""
    differs = np.any(reference[0] != other[0], axis=1)
    is_tie = np.abs(reference[1] - other[1]) < 1e-4 * np.abs(reference[1])
    if np.any(differs):
        ties = f"{np.sum(differs & is_tie)} of them with a tie in the score"
        print(f"  {name}: other tokens in {np.sum(differs)} of {len(differs)} sentences, {ties}")
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
        {str(n): functools.partial(call, t) for n, t in translators.items()}, rounds=3, warm_up=1
    )
    best = min(translators, key=lambda threads: timings[str(threads)].best_ms)
    print(f"  CTranslate2 {compute_type}: {best} thread(s)")
    return translators[best]


def run_cell(
    cell: Cell, model: Seq2SeqTransformer, path: Path, rounds: int
) -> tuple[dict[str, measure.Timing], bool]:
    """The timings, and whether the float32 contenders gave the same tokens."""
    ids = source_ids(SIZES[cell.size], cell.batch_size)
    # CTranslate2 adds the end token itself.
    words = [[f"w{token}" for token in row[:-1]] for row in ids]
    call = functools.partial(theirs, words=words, num_beams=cell.num_beams)
    contenders = {
        OURS: functools.partial(ours, model, ids, cell.num_beams, True),
        OURS_NO_XLA: functools.partial(ours, model, ids, cell.num_beams, False),
        THEIRS: functools.partial(call, best_threads(path, "float32", call)),
        THEIRS_INT8: functools.partial(call, best_threads(path, "int8", call)),
    }
    reference = contenders[THEIRS]()
    agree = [same_tokens(reference, contenders[name](), name) for name in (OURS, OURS_NO_XLA)]
    int8_tokens = contenders[THEIRS_INT8]()[0]
    share = np.mean(np.all(int8_tokens == reference[0], axis=1))
    print(f"  CTranslate2 int8 gives the same tokens for {share:.0%} of the sentences")
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
    parser.add_argument("--quick", action="store_true", help="two rounds, batch 1 only")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()
    cells = [cell for cell in CELLS if arguments.cells in cell.name]
    if arguments.quick:
        cells = [cell for cell in cells if cell.batch_size == 1]
    rounds = 2 if arguments.quick else arguments.rounds

    figures: dict[str, dict[str, measure.Timing]] = {}
    disagreements: list[str] = []
    for name, size in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            keras.utils.set_random_seed(1)
            model = peers.never_ending(peers.ours(size, max_length=STEPS))
            path = Path(folder) / "model"
            export_ctranslate2(model, make_tokenizer(size.vocabulary_size), path)
            for cell in (cell for cell in cells if cell.size == name):
                print(cell.name)
                figures[cell.name], agree = run_cell(cell, model, path, rounds)
                disagreements += [] if agree else [cell.name]
                print(measure.table(figures[cell.name], THEIRS), flush=True)
    print(f"\n{os.cpu_count()} cores, {platform.processor() or platform.machine()}")
    print(markdown(figures))
    if arguments.json:
        measure.write_json(arguments.json, figures)
    if disagreements:
        raise SystemExit(f"Other tokens, and not for a tie: {', '.join(disagreements)}")


if __name__ == "__main__":
    main()
