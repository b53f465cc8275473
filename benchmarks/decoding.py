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
from sentencepiece import sentencepiece_model_pb2

from keras_addnorm.data import Tokenizer
from keras_addnorm.interop import export_ctranslate2
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

STEPS, SOURCE_LENGTH = 32, 32
OURS, OURS_NO_XLA = "keras-addnorm, XLA", "keras-addnorm, no XLA"
THEIRS, THEIRS_INT8 = "CTranslate2 float32", "CTranslate2 int8"


@dataclasses.dataclass(frozen=True)
class Size:
    """Shape of the model: 3+3 layers, say, of `layers=3`."""

    layers: int
    hidden_dim: int
    intermediate_dim: int
    num_heads: int
    vocabulary_size: int


SIZES = {"tiny": Size(4, 128, 256, 4, 10_000), "base": Size(3, 512, 2048, 8, 8_000)}


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


def make_model(size: Size) -> Seq2SeqTransformer:
    """A model with random weights whose hypotheses never end."""
    keras.utils.set_random_seed(1)
    config = Seq2SeqConfig(
        source_vocabulary_size=size.vocabulary_size,
        target_vocabulary_size=size.vocabulary_size,
        num_encoder_layers=size.layers,
        num_decoder_layers=size.layers,
        hidden_dim=size.hidden_dim,
        intermediate_dim=size.intermediate_dim,
        num_heads=size.num_heads,
        scheme="pre_ln",
        share_embeddings=True,
        max_length=STEPS,
    )
    model = Seq2SeqTransformer(config)
    # As they start, sublayers add so little that a tied model repeats its last token for ever.
    for weight in model.decoder.weights:
        if weight.name == "kernel":
            weight.assign(2.0 * weight)
    # One direction is that of padding, start and end, and of no other token. The last norm's offset
    # points away from it, so far that these three never come near the best.
    direction = np.random.default_rng(2).normal(size=size.hidden_dim).astype("float32")
    direction /= np.linalg.norm(direction)
    table = keras.ops.convert_to_numpy(model.decoder_embedding.embeddings)
    table = table - np.outer(table @ direction, direction)
    table[:3] = -direction
    model.decoder.final_norm.beta.assign((2 * size.hidden_dim**0.5 + 20) * direction)
    model.decoder_embedding.embeddings.assign(table)
    return model


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


def source_ids(size: Size, batch_size: int) -> np.ndarray:
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
            model, path = make_model(size), Path(folder) / "model"
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
