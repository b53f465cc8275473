"""What a shortlist saves, and what it costs: time of exports, and translations of a trained run.

The first table times exports of random weights as `decoding.py` does, 32 steps with the whole
vocabulary and with shortlists of some sizes, in turn. With `--run-dir` a second one translates a
split with a trained run: BLEU, the share of translations that stay the same, and the time.

python benchmarks/shortlist.py
python benchmarks/shortlist.py --cells "tiny 1 " --sizes 1024
python benchmarks/shortlist.py --cells none --run-dir runs/multi30k --split validation
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import decoding
import keras
import measure
import numpy as np
import peers
import tensorflow as tf

from keras_addnorm.decoding import Lexicon, Shortlist, Translations, translate
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.text_data import load_texts
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.training import evaluate_translations

ALL = "all"


def random_lexicon(vocabulary_size: int, candidates: int = 64) -> Lexicon:
    """As large as one of a real text; which tokens it names does not change the time."""
    rng = np.random.default_rng(4)
    shape = (vocabulary_size, candidates)
    return Lexicon(
        rng.integers(3, vocabulary_size, shape, "int32"),
        rng.random(shape, "float32"),
        rng.random(vocabulary_size, "float32"),
    )


def by_name(lexicon: Lexicon, sizes: Sequence[int]) -> dict[str, Shortlist | None]:
    """No list, and one of each size."""
    return {ALL: None, **{f"{size:,}": Shortlist(lexicon, size) for size in sizes}}


def exports(size: peers.Size, sizes: Sequence[int], folder: Path) -> dict[str, Any]:
    """One model, exported with the whole vocabulary and with each shortlist."""
    keras.utils.set_random_seed(1)
    model = peers.never_ending(peers.ours(size, max_length=decoding.STEPS))
    tokenizer = decoding.make_tokenizer(size.vocabulary_size)
    shortlists = by_name(random_lexicon(size.vocabulary_size), sizes)
    return {
        name: decoding.export_and_load(model, tokenizer, folder / name, shortlist=shortlist)
        for name, shortlist in shortlists.items()
    }


def time_cell(
    cell: decoding.Cell, loaded: dict[str, Any], texts: list[str], rounds: int
) -> dict[str, measure.Timing]:
    """The time of a cell in each export, with XLA and without."""
    search = decoding.SEARCHES[cell.num_beams]
    contenders = {
        f"{name}{said}": functools.partial(
            decoding.ours, saved_model.signatures[f"{search}{kind}"], texts
        )
        for kind, said in (("_xla", ", XLA"), ("", ", no XLA"))
        for name, saved_model in loaded.items()
    }
    return measure.in_turn(contenders, rounds=rounds, warm_up=2)


def print_times(figures: dict[str, dict[str, measure.Timing]]) -> None:
    """Medians, and how many times faster each list is than the whole vocabulary."""
    names = list(next(iter(figures.values())))
    print("| 32 steps, ms | " + " | ".join(names) + " |")
    print("|---" + "|---:" * len(names) + "|")
    for cell, timings in figures.items():
        columns = []
        for name, timing in timings.items():
            whole = timings[ALL + name[name.index(", ") :]].median_ms
            gain = "" if name.startswith(ALL) else f" ({whole / timing.median_ms:.2f} ×)"
            columns.append(f"{timing.median_ms:.1f}{gain}")
        print(f"| {cell} | " + " | ".join(columns) + " |")


def print_translations(
    run_dir: Path, split: str, sizes: Sequence[int], batch_sizes: Sequence[int], rounds: int
) -> None:
    """What a trained run makes of a split, with and without lists."""
    run = load_run(RunDirectory(run_dir))
    sources, references = load_texts(run.config, split)
    search = run.config.evaluation
    # One lexicon for all sizes; the run estimates it, or has it.
    asked = run.config.replace({"evaluation.shortlist": sizes[0]})
    shortlists = by_name(dataclasses.replace(run, config=asked).shortlist.lexicon, sizes)
    print("\n| texts a batch | tokens | BLEU | equal translations | seconds | |")
    print("|---:|---:|---:|---:|---:|---:|")
    for batch_size in batch_sizes:
        found: dict[str, Translations] = {}

        def run_one(name: str, batch_size: int = batch_size, found: dict = found) -> None:
            found[name] = translate(
                run.model,
                run.tokenizers,
                sources,
                num_beams=search.num_beams,
                length_penalty=search.length_penalty,
                max_length=search.max_length,
                batch_size=batch_size,
                shortlist=shortlists[name],
            )

        calls = {name: functools.partial(run_one, name) for name in shortlists}
        timings = measure.in_turn(calls, rounds=rounds, warm_up=1)
        for name, timing in timings.items():
            texts = found[name].texts
            bleu = evaluate_translations(texts, references).bleu
            equal = np.mean([a == b for a, b in zip(texts, found[ALL].texts, strict=True)])
            gain = timings[ALL].median_ms / timing.median_ms
            print(
                f"| {batch_size} | {name} | {bleu:.2f} | {equal:.1%} | "
                f"{timing.median_ms / 1000:.2f} | {gain:.2f} × |",
                flush=True,
            )
    print(f"\n{len(sources)} sentences of {split!r}, {search.num_beams} beams")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", default="", help="only cells with this text in their name")
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=9, help="timed calls of each contender")
    parser.add_argument("--threads", type=int, default=0, help="of TensorFlow; 0: one a core")
    parser.add_argument("--run-dir", type=Path, help="a trained run to translate with, too")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--translations-rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="a miniature: does it run?")
    parser.add_argument("--json", help="file to write the times to")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    models = decoding.SMOKE if arguments.smoke else decoding.SIZES
    wanted = [cell for cell in decoding.cells(models) if arguments.cells in cell.name]

    figures: dict[str, dict[str, measure.Timing]] = {}
    for name in dict.fromkeys(cell.size for cell in wanted):
        with tempfile.TemporaryDirectory() as folder:
            loaded = exports(models[name], arguments.sizes, Path(folder))
            for cell in (cell for cell in wanted if cell.size == name):
                texts = decoding.source_texts(models[name], cell.batch_size)
                figures[cell.name] = time_cell(cell, loaded, texts, arguments.rounds)
                print(cell.name, measure.table(figures[cell.name], f"{ALL}, XLA"), sep="\n")
    if figures:
        print_times(figures)
    if arguments.json:
        measure.write_json(arguments.json, figures)
    if arguments.run_dir:
        print_translations(
            arguments.run_dir,
            arguments.split,
            arguments.sizes,
            arguments.batch_sizes,
            arguments.translations_rounds,
        )


if __name__ == "__main__":
    main()
