"""The main job from end to end on the built-in set, in a few minutes on two CPU cores."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import ArgumentError, UserError, unknown_name
from keras_addnorm.data.demo import ABOUT
from keras_addnorm.diagnostics import attention_maps, plot_attention
from keras_addnorm.runs.choices import DEMO_PAIRS
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.evaluate import Evaluation, evaluate, summary, table
from keras_addnorm.runs.export import export
from keras_addnorm.runs.piece_labels import readable_pieces
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import show
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import TrainedRun
from keras_addnorm.runs.zoo import find

# English dates, times and places move when they are translated: something to see in the picture.
DRAWN_SENTENCE = "Sophie was born in Italy on January 28, 1995."
# No sentence of the set: the model cannot know it, and the demonstration says so.
_UNKNOWN_SENTENCE = "A dog runs through the snow."

# For trying out that everything works, not how well: seconds instead of minutes.
_QUICK: dict[str, Any] = {
    "tokenizer.vocabulary_size": 300,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.hidden_dim": 16,
    "model.intermediate_dim": 16,
    "model.num_heads": 2,
    "training.epochs": 1,
    "training.bucket_lengths": [48],
    "training.warmup_steps": 2,
}


def demo_config(pair: str = "en-de") -> RunConfig:
    """Returns the configuration of the demonstration.

    Args:
        pair: `en-de`, `en-fr` or `en-es`.

    Returns:
        The configuration.

    Raises:
        UserError: If there is no such pair.

    Example:
        >>> demo_config("en-fr").target
        'fr'
    """
    if pair not in DEMO_PAIRS:
        raise unknown_name("--pair", pair, DEMO_PAIRS)
    source, target = pair.split("-")
    languages = {"data": f"demo/{pair}", "source": source, "target": target}
    return find("demo-en-de").config.replace(languages)


@dataclass(frozen=True)
class DemoResult:
    """The results of the demonstration.

    Attributes:
        run: The trained run.
        evaluation: The held-out pairs and their translations.
        attention: The picture of the cross-attention.
        exported: The folder of the exported version.
        served: Sentences and their translations by the export, in a new process: the first and the
            last held-out one, and one of a kind that is not in the set.
        seconds: How long it all took.
    """

    run: TrainedRun
    evaluation: Evaluation
    attention: Path
    exported: Path
    served: Mapping[str, str]
    seconds: float


def demo(
    pair: str = "en-de",
    directory: str | Path | None = None,
    exports: str | Path = "saved_models/demo",
    *,
    quick: bool = False,
    say: Callable[[str], None] = show,
    verbose: int = 1,
) -> DemoResult:
    """Trains, evaluates, draws, exports, and translates with the export in a new process.

    Args:
        pair: `en-de`, `en-fr` or `en-es`.
        directory: The run directory; by default `runs/demo-<pair>`. A finished run in it is not
            trained again.
        exports: The folder of exported versions.
        quick: Whether only to try out that everything works: a model that is far too small, and
            few test sentences.
        say: Takes lines for the user.
        verbose: 1 for progress bars, 2 for a line an epoch, 0 for neither.

    Returns:
        What was found.

    Raises:
        UserError: If there is no such pair, or the new process does not agree with this one.
    """
    started = time.perf_counter()
    config = demo_config(pair)
    if quick:
        config = config.replace(_QUICK)
    run_directory = RunDirectory(Path("runs", f"demo-{pair}") if directory is None else directory)
    split = "test[:16]" if quick else "test"

    say(f"1. Training {pair} on the built-in set.")
    run = train(
        config, run_directory, split="train[:500]" if quick else "train", say=say, verbose=verbose
    )
    say(f"\n2. Translating held-out sentences, none of which occurs in training ({split}).\n")
    evaluation = evaluate(run, split, verbose=int(verbose == 1))
    say(table(evaluation, config.evaluation.samples))
    say("\n" + summary(evaluation))

    attention = draw_attention(run, DRAWN_SENTENCE, run_directory.path / "attention.png")
    say(f"\n3. Pictures: {attention} (where the decoder looks) and {run_directory.curves}.")

    exported = export(run, exports)
    say(f"\n4. Exported to {exported}. A new process, with TensorFlow and without Keras, says:\n")
    served = _serve_and_compare(exported, evaluation)
    *known, unknown = (f"  {source}\n  {translation}\n" for source, translation in served.items())
    for pair in known:
        say(pair)
    say(f"{ABOUT} Such as:\n\n{unknown}")
    seconds = time.perf_counter() - started
    say(f"exact match: {evaluation.exact_match:.1f} %")
    say(f"time: {seconds / 60:.1f} minutes\n")
    say(_next_steps(run_directory.path, exports, evaluation.sources[0]))
    return DemoResult(run, evaluation, attention, exported, served, seconds)


def _next_steps(run: Path, exports: str | Path, sentence: str) -> str:
    """Commands that go on from here."""
    return "\n".join(
        (
            "Next, with this model:",
            f"  keras-addnorm translate {run} {shlex.quote(sentence)}",
            f"  keras-addnorm inspect {run}",
            f"  keras-addnorm serve {exports}    # a page at http://127.0.0.1:8501/ (extra: serve)",
            "with sentence pairs of your own (docs/how_to/your_own_data.md):",
            "  keras-addnorm train runs/mine --data spa.txt --source en --target es",
        )
    )


def draw_attention(run: TrainedRun, sentence: str, path: str | Path) -> Path:
    """Translates a sentence and draws the cross-attention of each piece; returns the path."""
    import numpy as np

    end_id = run.model.config.end_id
    source = [*run.tokenizers.source.encode(sentence), end_id]
    ids, _ = run.model.generate(np.array([source]), max_length=run.config.evaluation.max_length)
    said = [int(token) for token in ids[0] if token != run.model.config.pad_id]
    maps = attention_maps(run.model, source, [run.model.config.start_id, *said[:-1]])
    return plot_attention(
        maps.cross,
        readable_pieces(run.tokenizers.source, source),
        readable_pieces(run.tokenizers.target, said),
        path,
    )


def _serve_and_compare(exported: Path, evaluation: Evaluation) -> dict[str, str]:
    """Translates some sentences in a new process; the known ones must be as in this process."""
    known = [evaluation.sources[0], evaluation.sources[-1]]
    sources = [*known, _UNKNOWN_SENTENCE]
    script = Path(__file__).with_name("serve_once.py")
    # -P: the script's own folder, with modules named like common ones, stays off the path.
    done = subprocess.run(
        [sys.executable, "-P", str(script), str(exported), *sources],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise UserError(f"The export did not load in a new process:\n{done.stderr[-2000:]}")
    translations = json.loads(done.stdout.splitlines()[-1])
    expected = [evaluation.translations[0], evaluation.translations[-1]]
    if translations[: len(known)] != expected:
        raise ArgumentError(
            "The export translates otherwise than the model.", f"{expected!r}", value=translations
        )
    return dict(zip(sources, translations, strict=True))
