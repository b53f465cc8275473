"""Teacher and student beside each other: scores, speed on one core and size."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import is_number, is_whole, to_file
from keras_addnorm.basics.text import parse_json
from keras_addnorm.runs.directory import RunDirectory, write_text
from keras_addnorm.runs.distillation.stages import Stages, damaged
from keras_addnorm.runs.distillation.teacher import Sourced
from keras_addnorm.runs.portion_progress import filling
from keras_addnorm.runs.portions import Portions, is_translation
from keras_addnorm.runs.rows import Rows
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.runs.translate import translate_texts
from keras_addnorm.runs.translation_portions import RunTranslator
from keras_addnorm.runs.worker_processes import in_processes, shares_of_cores
from keras_addnorm.training import evaluate_translations, on_eight_bit_grid

TIMED_SENTENCES = 100
# They are translated so often, or less often where that takes longer than so many seconds.
_TIMES, _ENOUGH_SECONDS = 3, 20.0
_FIGURES = "figures.json"


@dataclass(frozen=True)
class Figures:
    """What was measured of a model.

    Attributes:
        bleu: Corpus BLEU.
        chrf: Corpus chrF.
        sentences_per_second: On one core, with the search of the run, when all is compiled.
        weights: The number of weights.
        megabytes: Their size, in units of 10^6 bytes: one for each weight of a matrix on the grid
            of eight bits, four for all others.
        signatures: sacreBLEU's, of BLEU and of chrF.
    """

    bleu: float
    chrf: float
    sentences_per_second: float
    weights: int
    megabytes: float
    signatures: tuple[str, str]


def _figures(values: Any) -> Figures:
    """The figures as they were written; an error says that they are none."""
    bleu, chrf = values["signatures"]
    figures = Figures(**{**values, "signatures": (bleu, chrf)})
    numbers = [number for name, number in vars(figures).items() if name != "signatures"]
    if not (
        isinstance(bleu, str)
        and isinstance(chrf, str)
        and all(is_number(number, least=0) for number in numbers)
        and is_whole(figures.weights)
    ):
        raise ValueError("a figure is none")
    return figures


def measure(
    stages: Stages,
    name: str,
    directory: RunDirectory,
    test: Path,
    test_digest: str,
    processes: int,
    say: Callable[[str], None],
) -> Figures:
    """Translates a test set with a run's own search, scores that, and times a part on one core.

    Args:
        stages: The stages; what was measured once is read.
        name: The name of this one.
        directory: The run.
        test: The test set, as `write_rows` writes it.
        test_digest: Its digest.
        processes: How many processes translate.
        say: Takes lines for the user.

    Returns:
        The figures.
    """
    config = directory.read_config()
    translator = RunTranslator(directory, config, choose_by="chrf")
    made_from = {
        "model": translator.digest,
        "test": test_digest,
        "figures": [item.name for item in fields(Figures)],
    }
    folder = stages.begin(name, made_from, is_text=False)
    path = folder / _FIGURES
    if path.exists():
        try:
            return _figures(parse_json(to_file(path).read_bytes()))
        except (ValueError, TypeError, LookupError) as error:
            raise damaged(path, error) from error
    rows = Rows(test)
    portions = Portions[Sourced](folder, len(rows), is_result=is_translation)
    with filling(portions, say) as done:
        translator.fill(portions, test, processes, done)
    scores = evaluate_translations(
        [text for text, *_ in portions],
        [reference for _, reference in rows],
        language=config.target,
        tokenizer=config.evaluation.bleu_tokenizer,
    )
    (timed,) = in_processes(
        f"{__name__}:time_on_one_core",
        [{"run": str(directory.path), "verify": directory.verify, "test": str(test)}],
        [shares_of_cores(1)[0][:1]],
    )
    figures = Figures(
        scores.bleu,
        scores.chrf,
        timed["sentences_per_second"],
        timed["weights"],
        timed["bytes"] / 1e6,
        (scores.bleu_signature, scores.chrf_signature),
    )
    write_text(path, json.dumps(asdict(figures), indent=1) + "\n")
    return figures


def time_on_one_core(run: str, verify: bool, test: str) -> dict[str, float]:
    """Times a run's translation of the first sentences; the process keeps to one core."""
    loaded = load_run(RunDirectory(run, verify=verify))
    rows = Rows(test)
    texts = [source for source, _ in rows.read(range(min(len(rows), TIMED_SENTENCES)))]
    translate_texts(loaded, texts)  # Compiles.
    seconds: list[float] = []
    while len(seconds) < _TIMES and sum(seconds) < _ENOUGH_SECONDS:
        started = time.perf_counter()
        translate_texts(loaded, texts)
        seconds.append(time.perf_counter() - started)
    return {
        "sentences_per_second": len(texts) / statistics.median(seconds),
        "weights": loaded.model.count_params(),
        "bytes": size_of(loaded.model),
    }


def size_of(model: keras.Model) -> int:
    """Counts bytes: one for each weight of a matrix on the grid of eight bits, four for others."""
    return sum(_bytes(ops.convert_to_numpy(weight)) for weight in model.weights)


def _bytes(weight: np.ndarray) -> int:
    if weight.ndim > 1:
        distance = np.abs(ops.convert_to_numpy(on_eight_bit_grid(weight)) - weight).max()
        if distance <= 1e-6 * np.abs(weight).max():
            return weight.size
    return 4 * weight.size


def table(columns: dict[str, Figures | None]) -> str:
    """Lays out figures as a table in Markdown; a model that cannot be measured has none."""
    lines: dict[str, Callable[[Figures], str]] = {
        "BLEU": lambda one: f"{one.bleu:.1f}",
        "chrF": lambda one: f"{one.chrf:.1f}",
        "sentences/s, one core": lambda one: f"{one.sentences_per_second:.1f}",
        "weights": lambda one: f"{one.weights:,}",
        "MB": lambda one: f"{one.megabytes:.3g}",
    }
    head = f"| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}\n"
    return head + "".join(
        f"| {name} | {' | '.join('-' if one is None else say(one) for one in columns.values())} |\n"
        for name, say in lines.items()
    )
