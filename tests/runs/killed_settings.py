"""Trains runs of several settings, each whole, and once more killed in mid-training and resumed.

Run as a program: `killed_settings.py CORPUS FOLDER [NAME ...]`. Prints how each process has ended.
"""

import json
import sys
from pathlib import Path

from killed_training import after_batch, in_child

BASE = {"training.ema": 0.0, "training.epochs": 1}
# What the training keeps beside weights and Adam's moments, or reads beside its pairs.
SETTINGS = {
    "lora": {"training.start_from": "base", "training.lora_rank": 2},
    "accumulation": {"training.batches_per_update": 3, "training.subword_sampling": 0.2},
    "guided": {"training.guided_alignment": 0.5, "training.ema": 0.0},
    "eight-bits": {
        "training.start_from": "base",
        "training.eight_bits": True,
        "training.ema": 0.0,
    },
    "token-level": {"training.start_from": "base", "training.teacher": "base"},
    "muon": {"training.optimizer": "muon", "training.ema": 0.0},
    "r-drop": {"training.r_drop": 1.0, "training.average_last": 2, "training.ema": 0.0},
}


def main(corpus, folder, *names):
    folder = Path(folder)

    def end(run, changes, prepare=lambda: None):
        files = corpus, folder / run, folder / f"{run}.txt"
        base = str(folder / "base")
        places = {key: base if value == "base" else value for key, value in changes.items()}
        return in_child(prepare, *files, places)

    ends = {"base": end("base", BASE)}
    for name in names or SETTINGS:
        changes = SETTINGS[name]
        ends[name] = [
            end(f"{name}-whole", changes),
            end(f"{name}-killed", changes, lambda: after_batch(1, 3)),
            end(f"{name}-killed", changes),
        ]
    print(json.dumps(ends))


if __name__ == "__main__":
    main(*sys.argv[1:])
