"""Makes the page "Add & Norm by hand" of trained runs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from keras_addnorm import schemes
from keras_addnorm.basics.argument_checks import is_number, to_path
from keras_addnorm.basics.errors import UserError
from keras_addnorm.diagnostics import ResidualLog
from keras_addnorm.explain import ExplainedRun, page
from keras_addnorm.runs.directory import write_text
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.outputs import require_writable
from keras_addnorm.runs.text_data import load_pairs
from keras_addnorm.runs.trained_run import TrainedRun, load_run

_NUM_SENTENCES = 6
# Longer ones do not fit beside one another on a screen.
_LONGEST = 60


def explain(
    directories: Sequence[str | Path],
    html: str | Path,
    *,
    sentences: Sequence[str] = (),
    title: str = "Add & Norm by hand",
    note: str = "",
) -> Path:
    """Writes a page that runs trained models and shows what each sublayer computes.

    A run that was trained with `monitor_every` brings the course of its training along.

    Args:
        directories: Run directories; the page switches between them.
        html: The page to write, whole or not at all.
        sentences: Texts to begin with; by default some short ones of the first run's validation
            pairs.
        title: Heading of the page.
        note: What the runs have in common, in a sentence.

    Returns:
        The path of the page.

    Raises:
        UserError: If one is not a trained run, or has something that the page cannot do.
    """
    require_writable(html)
    runs = [load_run(directory) for directory in directories]
    if not runs:
        raise UserError("A page needs a model. Expected at least one run directory.")
    with as_user_errors():
        examples = [(text, "") for text in sentences] or _examples(runs[0])
        explained = [_explained(run, name) for run, name in zip(runs, _names(runs), strict=True)]
        text = page(explained, examples, title=title, note=note)
    write_text(html, text)
    return to_path(html)


def _explained(run: TrainedRun, name: str) -> ExplainedRun:
    # A training that diverged may have logged some that are none.
    losses = [row["val_loss"] for row in run.directory.read_log() if is_number(row.get("val_loss"))]
    search = run.config.evaluation
    return ExplainedRun(
        name,
        run.model,
        run.tokenizers,
        log=ResidualLog(run.directory.residuals).read(),
        validation_loss=min(losses, default=None),
        length_penalty=(search.length_penalty_kind, search.length_penalty),
    )


def _names(runs: Sequence[TrainedRun]) -> list[str]:
    """The schemes' names; where two runs have the same, with the names of their folders."""
    names = [str(schemes.serialize(run.model.encoder.scheme)["name"]) for run in runs]
    count = Counter(names)
    return [
        name if count[name] == 1 else f"{name} ({run.directory.path.name})"
        for run, name in zip(runs, names, strict=True)
    ]


def _examples(run: TrainedRun) -> list[tuple[str, str]]:
    try:
        pairs = load_pairs(run.config, "validation")
        short = (pair for pair in pairs if all(pair) and len(pair[0]) <= _LONGEST)
        return list(itertools.islice(short, _NUM_SENTENCES))
    except UserError as error:
        raise UserError(
            f"The run's own data gives no sentence to begin with. Expected it where it was, or "
            f"sentences of yours, as --sentence TEXT. {error}"
        ) from error
