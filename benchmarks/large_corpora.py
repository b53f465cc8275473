"""How the preparation of a training grows with its corpus: processor time and peak memory.

Makes folders of random sentences of so many pairs (Zipf's law, 40,000 words a side, as in
`HISTORY.md`) and runs the phases that come before the first update, each size in a process of its
own: training the tokenizer, tokenising and checking the pairs, the buckets and the first batch; and
the same again, as a second start does it. Beside it stands what nobody can avoid: reading the text
once and tokenising it, without keeping the ids. Where they are installed, peers prepare the same
pairs (`corpus_peers.py`).

    python benchmarks/large_corpora.py --json corpora.json    # 14 minutes of one core
    python benchmarks/large_corpora.py --pairs 100000 --keep corpora    # keeps the text
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import corpus_peers
import numpy as np
from measure import cpu_seconds, peak_mebibytes

_WORDS, _LONGEST_WORD, _MEAN_LENGTH = 40_000, 9, 12
_AT_ONCE = 50_000
SIZES = (10_000, 100_000, 1_000_000, 5_000_000)


def write_corpus(folder: Path, pairs: int, seed: int = 0) -> None:
    """Writes `train.en`, `train.de` and small held-out sets; a folder that is there stays."""
    if folder.exists():
        return
    new = folder.with_name(f"{folder.name}.part")  # A killed process leaves no half of a corpus.
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for side, language in enumerate(("en", "de")):
        generator = np.random.default_rng((seed, side))
        words = _words(generator)
        for split, count in (("train", pairs), ("val", 500), ("test", 500)):
            with (new / f"{split}.{language}").open("w", encoding="utf-8") as file:
                for start in range(0, count, _AT_ONCE):
                    file.write(_sentences(generator, words, min(_AT_ONCE, count - start)))
    new.rename(folder)


def _words(generator: np.random.Generator) -> np.ndarray:
    letters = np.array([*"etaoinshrdlucmfwypvbgkjxqz"])
    shares = 1.0 / np.arange(1, len(letters) + 1)
    sizes = generator.integers(2, _LONGEST_WORD + 1, _WORDS)
    drawn = generator.choice(letters, int(sizes.sum()), p=shares / shares.sum())
    starts = np.cumsum(sizes) - sizes
    return np.array(
        ["".join(drawn[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    )


def _sentences(generator: np.random.Generator, words: np.ndarray, count: int) -> str:
    shares = 1.0 / np.arange(1, len(words) + 1)
    lengths = 1 + generator.poisson(_MEAN_LENGTH, count)
    chosen = words[generator.choice(len(words), int(lengths.sum()), p=shares / shares.sum())]
    ends = np.cumsum(lengths)
    rows = (" ".join(chosen[end - size : end]) for end, size in zip(ends, lengths, strict=True))
    return "".join(f"{row}\n" for row in rows)


def prepare(corpus: Path, run: Path, preset: str) -> dict[str, float]:
    """Prepares a training in this process, up to its first batch; its figures."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    from keras_addnorm.distribution import ONE_DEVICE
    from keras_addnorm.runs import RunConfig, RunDirectory
    from keras_addnorm.runs.prepare import prepare as prepare_training

    config = RunConfig.from_dict({"data": str(corpus), "model": {"preset": preset}})
    directory = RunDirectory(run)
    started, before = cpu_seconds(), peak_mebibytes()
    with directory.locked():
        prepared = prepare_training(config, directory, ONE_DEVICE, lambda line: None)
        next(prepared.epochs.batches(0))
    return {
        "cpu": round(cpu_seconds() - started, 2),
        "imports_mib": before,
        "peak_mib": peak_mebibytes(),
        "pairs": prepared.report.kept,
    }


def read_and_tokenize(corpus: Path, run: Path) -> dict[str, float]:
    """Reads the text once and tokenises it with the tokenizers of a run."""
    from keras_addnorm.data import TokenizerPair
    from keras_addnorm.data.loading import open_translation
    from keras_addnorm.data.piece_links import encode_pairs
    from keras_addnorm.data.request import Request

    tokenizers = TokenizerPair.load(run / "tokenizer")
    started = cpu_seconds()
    pairs = open_translation(Request(str(corpus), "en", "de")).read("train")
    count = sum(1 for _ in encode_pairs(pairs, tokenizers, tokenizers.bound_format))
    return {"cpu": round(cpu_seconds() - started, 2), "pairs": count}


def _in_a_process(*arguments: object) -> dict[str, float]:
    command = [sys.executable, __file__, "--only", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(pairs: int, folder: Path, preset: str) -> dict[str, float]:
    """All figures of one size."""
    corpus, run = folder / f"corpus-{pairs}", folder / f"run-{pairs}-{int(time.time())}"
    write_corpus(corpus, pairs)
    first = _in_a_process("prepare", corpus, run, preset)
    second = _in_a_process("prepare", corpus, run, preset)
    plain = _in_a_process("read", corpus, run, preset)
    peers = {
        f"{name}{again}_{key}": value
        for name, starts in corpus_peers.STARTS.items()
        if importlib.util.find_spec(name) is not None
        for again in starts
        for key, value in _in_a_process(name, corpus, run, preset).items()
    }
    ids = sum(path.stat().st_size for path in (run / "token_ids").glob("*.npy"))
    return {
        "pairs": pairs,
        "read_and_tokenize_cpu": plain["cpu"],
        "first_start_cpu": first["cpu"],
        "second_start_cpu": second["cpu"],
        "first_peak_mib": first["peak_mib"],
        "second_peak_mib": second["peak_mib"],
        "imports_mib": first["imports_mib"],
        "ids_mib": round(ids / 2**20, 1),
        **peers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=SIZES)
    parser.add_argument("--preset", default="micro")
    parser.add_argument("--keep", type=Path, help="folder for corpora and runs, which stay there")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--smoke", action="store_true", help="the smallest run that does it all")
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        phase, corpus, run, preset = options.only
        phases = {
            "prepare": functools.partial(prepare, preset=preset),
            "read": read_and_tokenize,
            **corpus_peers.PEERS,
        }
        print(json.dumps(phases[phase](Path(corpus), Path(run))))
        return
    sizes = [3_000] if options.smoke else options.pairs
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for pairs in sizes:
            rows.append(measure(pairs, options.keep or Path(temporary), options.preset))
            if options.json:  # The largest may take an hour.
                options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print("| | " + " | ".join(f"{row['pairs']:,}" for row in rows) + " |")
    print("|---|" + "---:|" * len(rows))
    for name in rows[0]:
        print(
            f"| {name.replace('_', ' ')} | " + " | ".join(f"{row[name]:,}" for row in rows) + " |"
        )


if __name__ == "__main__":
    main()
