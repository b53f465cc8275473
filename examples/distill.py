"""A small fast model from a big one, on the built-in set: first a teacher, then its student.

python examples/distill.py            # a teacher of preset tiny, a student of student-micro
python examples/distill.py --smoke    # only tries that it runs

On two cores it takes about a quarter of an hour, most of it for the teacher's training. With runs
and text of your own one command does what follows the teacher (docs/how_to/distill.md):

keras-addnorm distill runs/student --teacher runs/big --data FOLDER --source en --target de
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from keras_addnorm.runs import RunConfig
from keras_addnorm.runs.distillation.card import comparison
from keras_addnorm.runs.distillation.distill import Distilled, distill
from keras_addnorm.runs.distillation.settings import DistillationConfig, student_config
from keras_addnorm.runs.train import train

DATA = {"data": "demo/en-de", "source": "en", "target": "de"}
TEACHER = {"split": "train[:5000]", "model.preset": "tiny", "training.epochs": 10}
STUDENT = {"split": "train[:5000]", "model.preset": "student-micro", "training.epochs": 20}
SMOKE = {
    "split": "train[:200]",
    "validation": "validation[:20]",
    "tokenizer.vocabulary_size": 200,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.hidden_dim": 8,
    "model.intermediate_dim": 8,
    "model.num_heads": 2,
    "training.epochs": 1,
    "training.jit_compile": False,
    "evaluation.num_beams": 1,
    "evaluation.max_length": 8,
}


def main(folder: Path, smoke: bool = False) -> Distilled:
    """Trains both and compares them; everything is in the folder, and a second call goes on."""
    teacher: dict[str, Any] = {**TEACHER, **(SMOKE if smoke else {})}
    student: dict[str, Any] = {**STUDENT, **(SMOKE if smoke else {})}
    train(RunConfig().replace({**DATA, **teacher}), folder / "teacher")
    settings = DistillationConfig(str(folder / "teacher"), beams=2 if smoke else 4, n_best=2)
    found = distill(student_config({**DATA, **student}), settings, folder / "student")
    print(comparison(found))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs", "distill_example"))
    parser.add_argument("--smoke", action="store_true", help="only try that it runs")
    chosen = parser.parse_args()
    if chosen.smoke:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), smoke=True)
    else:
        main(chosen.folder)
