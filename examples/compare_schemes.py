"""Post-LN, Pre-LN, DeepNorm and Pre-LN with RMSNorm on one corpus, each with several seeds.

python examples/compare_schemes.py --data FOLDER --runs runs/schemes    # 12 trainings; see --help
python examples/compare_schemes.py --smoke        # tries that each of CASES runs, one of yours too

FOLDER holds train.en, train.de, val.en, val.de. Every training is a run directory of its own: a
killed comparison resumes where it stopped. The scores are those of the validation set, with the
weights of the best epoch. docs/results.md has the table for Multi30k.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.evaluate import evaluate
from keras_addnorm.runs.train import train

CASES: dict[str, dict[str, Any]] = {
    "Post-LN": {"scheme": "post_ln"},
    "Pre-LN": {"scheme": "pre_ln"},
    "DeepNorm": {"scheme": "deep_norm"},
    "Pre-LN, RMSNorm": {"scheme": "pre_ln", "norm": "rms_norm"},
}
# Deep for its width: what tells the schemes apart is depth.
BUDGET = {
    "tokenizer": {"kind": "bpe", "vocabulary_size": 2000},
    "model": {
        "preset": "tiny",
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "hidden_dim": 64,
        "intermediate_dim": 128,
        "dropout": 0.1,
        "share_embeddings": True,
        "max_length": 128,
    },
    "training": {
        "epochs": 4,
        "tokens_per_batch": 2048,
        "bucket_lengths": [16, 20, 26, 48],
        "peak_learning_rate": 0.002,
        "warmup_steps": 500,
    },
    "evaluation": {"num_beams": 1, "max_length": 64},
}
SMOKE = {
    "tokenizer": {"vocabulary_size": 300},
    "model": {"num_encoder_layers": 1, "num_decoder_layers": 1, "hidden_dim": 8},
    "training": {"epochs": 1, "bucket_lengths": [48], "jit_compile": False},
    "evaluation": {"max_length": 8},
}


@dataclass(frozen=True)
class Result:
    """What one training came to on the validation set.

    Attributes:
        loss: Its best loss, in nats a token.
        bleu: BLEU, cased, greedy.
    """

    loss: float
    bleu: float


def compare(
    config: RunConfig, cases: dict[str, dict[str, Any]], seeds: range, runs: Path, pairs: str = ""
) -> dict[str, list[Result]]:
    """Trains and scores every case with every seed; what is there already is not done again."""
    results: dict[str, list[Result]] = {name: [] for name in cases}
    for seed in seeds:  # The outer loop: a comparison that is stopped early is still one.
        for name, choice in cases.items():
            directory = RunDirectory(runs / f"{re.sub(r'[^0-9A-Za-z]+', '-', name)}-{seed}")
            changed = {f"model.{key}": value for key, value in choice.items()}
            run = train(
                config.replace({**changed, "training.seed": seed}),
                directory,
                split=f"train{pairs}",
                verbose=0,
            )
            split = f"validation{pairs}"
            if split not in directory.read_scores():
                evaluate(run, split)
            result = Result(
                loss=min(row["val_loss"] for row in directory.read_log()),
                bleu=directory.read_scores()[split]["cased"]["bleu"],
            )
            print(f"{name}, seed {seed}: {result}", flush=True)
            results[name].append(result)
    return results


def table(results: dict[str, list[Result]]) -> str:
    """Mean, smallest and largest of each case, as Markdown."""

    def spread(values: list[float], digits: int) -> str:
        mean, low, high = statistics.mean(values), min(values), max(values)
        return f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"

    lines = ["| | seeds | loss | BLEU |", "|---|---:|---|---|"]
    for name, found in results.items():
        loss = spread([result.loss for result in found], 3)
        bleu = spread([result.bleu for result in found], 1)
        lines.append(f"| {name} | {len(found)} | {loss} | {bleu} |")
    return "\n".join(lines)


def main(arguments: argparse.Namespace) -> dict[str, list[Result]]:
    """Compares, prints the table and returns what it shows."""
    config = RunConfig.from_dict({**BUDGET, "data": arguments.data})
    if arguments.smoke:
        small = {f"{part}.{key}": v for part, some in SMOKE.items() for key, v in some.items()}
        with tempfile.TemporaryDirectory() as runs:
            results = compare(config.replace(small), CASES, range(1), Path(runs), "[:40]")
    else:
        if arguments.epochs:
            config = config.replace({"training.epochs": arguments.epochs})
        results = compare(config, CASES, range(1, arguments.seeds + 1), Path(arguments.runs))
    print(table(results))
    return results


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--data", default="demo", help="a folder of parallel text, or demo")
    made.add_argument("--runs", default="runs/schemes", help="where the run directories go")
    made.add_argument("--seeds", type=int, default=3, help="trainings of each case")
    made.add_argument("--epochs", type=int, help=f"default: {BUDGET['training']['epochs']}")
    made.add_argument("--smoke", action="store_true", help="only try that each case runs")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
