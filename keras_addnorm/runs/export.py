"""Exports a trained run: as one SavedModel, or for another runtime.

The functions import what they need, because `keras-addnorm --help` reads the table of formats.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.settings import SEARCH_SETTINGS, RunConfig

if TYPE_CHECKING:
    from keras_addnorm.interop import BrowserPage
    from keras_addnorm.runs.trained_run import TrainedRun

_MOST_SAMPLES = 100


def export(
    run: TrainedRun,
    directory: str | Path,
    version: int | None = None,
    licence: str | None = None,
    storage: str = "float32",
) -> Path:
    """Exports a run with the search that its configuration asks for.

    Its card says what the run was trained on and the scores that `evaluate` found.

    Args:
        run: A trained run.
        directory: The folder of the versions, such as `saved_models/<name>`.
        version: The version's number, or None for the next one.
        licence: Under which licence the model may be used, for its card; `None` for what the run
            says.
        storage: How the weights are stored: `float32`, `float16` or `int8`.

    Returns:
        The folder of the new version.

    Raises:
        UserError: If the version exists already.
    """
    from keras_addnorm.serving import export_saved_model

    with as_user_errors():
        return export_saved_model(
            run.model,
            run.tokenizers,
            directory,
            version,
            search=run.search(),
            storage=storage,
            card=_card(run, licence),
        )


def _card(run: TrainedRun, licence: str | None) -> dict[str, Any]:
    from keras_addnorm.data.demo import ABOUT

    config = run.config
    data = Path(config.data)
    # Of a folder, only its name: its path is private.
    name = data.resolve().name if data.exists() else config.data
    pairs = {"name": name, "source": config.source, "target": config.target}
    is_demo = _has_pairs(run) and config.data.partition("/")[0] == "demo"
    return {
        "training_data": pairs if _has_pairs(run) else None,
        "scores": run.directory.read_scores(),
        "licence": licence or config.licence or None,
        # What the page of the server says.
        **({"note": ABOUT} if is_demo else {}),
    }


def _has_pairs(run: TrainedRun) -> bool:
    """Whether a run has sentence pairs: one that was imported may only have the default ones."""
    return run.directory.log.exists() or run.config.data != RunConfig().data


def export_for_runtime(run: TrainedRun, directory: str | Path, name: str) -> Path:
    """Exports a run for another runtime, which searches by itself.

    Args:
        run: A trained run.
        directory: The folder to make.
        name: The format; `FORMATS` says what it has inside of the run's search.

    Returns:
        The folder.

    Raises:
        UserError: If the folder exists, a package is missing, or the runtime cannot represent the
            model.
    """
    from keras_addnorm import interop

    write = getattr(interop, f"export_{name}")
    inside = {setting: getattr(run.config.evaluation, setting) for setting in FORMATS[name].search}
    with as_user_errors():
        found: Path = write(run.model, directory=directory, tokenizer=run.tokenizers, **inside)
    return found


def export_for_engine(
    run: TrainedRun, directory: str | Path, engine: str | Path | None = None
) -> Path:
    """Exports a run for Bergamot's engine, in eight bits, with its shortlist.

    Args:
        run: A trained run. Its validation pairs are what activations are measured on; of a run that
            was imported without pairs, the engine measures them itself.
        directory: The folder to make.
        engine: The folder of the engine's npm package, for a page that translates in the browser;
            `None` for the model alone.

    Returns:
        The folder.

    Raises:
        UserError: If the folder exists, the engine cannot have such a model, or `engine` is none.
    """
    from keras_addnorm import interop
    from keras_addnorm.data.strings import string_pairs
    from keras_addnorm.runs.text_data import run_pairs

    shortlist = run.search().shortlist
    with as_user_errors():
        page = None if engine is None else _page(run, engine)
        pairs = string_pairs(run_pairs(run.config).validation) if _has_pairs(run) else ()
        return interop.export_bergamot(
            run.model,
            run.tokenizers,
            directory,
            samples=[source for source, _ in itertools.islice(pairs, _MOST_SAMPLES)],
            lexicon=None if shortlist is None else shortlist.lexicon,
            page=page,
        )


def _page(run: TrainedRun, engine: str | Path) -> BrowserPage:
    """The page of a run, with what its card says."""
    from keras_addnorm.interop import BrowserPage

    card, config = _card(run, None), run.config
    facts = {
        "Scores": _scores(card["scores"]),
        "Trained on": (card["training_data"] or {}).get("name", ""),
        "Licence": card["licence"] or "not stated",
    }
    return BrowserPage(
        engine,
        name=run.directory.path.resolve().name,
        source=config.source or "",
        target=config.target or "",
        note=card.get("note", ""),
        facts={name: text for name, text in facts.items() if text},
    )


def _scores(scores: dict[str, Any]) -> str:
    """The scores of the test set, or else of a split that was evaluated, in a line."""
    split = "test" if "test" in scores else next(iter(scores), None)
    if split is None:
        return ""
    found = scores[split]
    try:
        bleu, chrf, count = found["cased"]["bleu"], found["cased"]["chrf"], found["sentences"]
        text = f"BLEU {bleu:.1f}, chrF {chrf:.1f} on {count:,} sentences"
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"The scores of the split {split!r} are not those that `evaluate` writes "
            f"({error!r:.80}). Remove the run's scores.json, and evaluate again."
        ) from error
    return f"{text} ({split}), before the rounding to eight bits"


@dataclass(frozen=True)
class Format:
    """A format that a run can be exported in.

    Attributes:
        write: Takes the run, the folder, and arguments of its own; returns the folder that it made.
        arguments: Its own arguments.
        search: The settings of `[evaluation]` that the export has inside.
    """

    write: Callable[..., Path]
    arguments: tuple[str, ...] = ()
    search: tuple[str, ...] = ()


def _for_runtime(name: str, *search: str) -> Format:
    return Format(functools.partial(export_for_runtime, name=name), search=search)


# The ONE table of formats.
FORMATS = {
    "saved_model": Format(export, ("version", "licence", "storage"), SEARCH_SETTINGS),
    "ctranslate2": _for_runtime("ctranslate2"),
    "onnx": _for_runtime("onnx", "max_length"),
    "litert": _for_runtime("litert", "max_length"),
    # Whether there is one; the engine's lists have no size of their own.
    "bergamot": Format(export_for_engine, ("engine",), ("shortlist",)),
}
