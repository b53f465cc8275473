"""Exports a trained run: as one SavedModel, or for another runtime.

The functions import what they need, because `keras-addnorm --help` reads the table of formats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.settings import SEARCH_SETTINGS

if TYPE_CHECKING:
    from keras_addnorm.runs.trained_run import TrainedRun


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

    search = run.config.evaluation
    with as_user_errors():
        return export_saved_model(
            run.model,
            run.tokenizers,
            directory,
            version,
            strategies={
                "translate": search.strategy(),
                "translate_nbest": search.strategy(search.num_beams),
            },
            max_length=search.max_length,
            constraints=search.constraints,
            shortlist=run.shortlist,
            splitting=run.config.splitting,
            storage=storage,
            card=_card(run, licence),
        )


def _card(run: TrainedRun, licence: str | None) -> dict[str, Any]:
    config = run.config
    data = Path(config.data)
    # Of a folder, only its name: its path is private.
    name = data.resolve().name if data.exists() else config.data
    return {
        "training_data": {"name": name, "source": config.source, "target": config.target},
        "scores": run.directory.read_scores(),
        "licence": licence or config.licence or None,
    }


def export_for_ctranslate2(run: TrainedRun, directory: str | Path) -> Path:
    """Exports a run for CTranslate2, which gets the search settings when it translates.

    Args:
        run: A trained run.
        directory: The folder to make.

    Returns:
        The folder.

    Raises:
        UserError: If the folder exists, CTranslate2 is missing, or cannot represent the model.
    """
    from keras_addnorm.interop import export_ctranslate2

    with as_user_errors():
        return export_ctranslate2(run.model, run.tokenizers, directory)


def export_for_onnx(run: TrainedRun, directory: str | Path) -> Path:
    """Exports a run as ONNX graphs, for at most as many tokens as its configuration allows.

    Args:
        run: A trained run.
        directory: The folder to make.

    Returns:
        The folder.

    Raises:
        UserError: If the folder exists, a package is missing, or ONNX cannot represent the model.
    """
    from keras_addnorm.interop import export_onnx

    limit = run.config.evaluation.max_length
    with as_user_errors():
        return export_onnx(run.model, directory, tokenizer=run.tokenizers, max_length=limit)


def export_for_litert(run: TrainedRun, directory: str | Path) -> Path:
    """Exports a run for LiteRT: for one text at a time, with the model's length limit.

    Args:
        run: A trained run.
        directory: The folder to make.

    Returns:
        The folder.

    Raises:
        UserError: If the folder exists, or LiteRT cannot represent the model.
    """
    from keras_addnorm.interop import export_litert

    limit = run.config.evaluation.max_length
    with as_user_errors():
        return export_litert(run.model, directory, tokenizer=run.tokenizers, max_length=limit)


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


# The ONE table of formats.
FORMATS = {
    "saved_model": Format(export, ("version", "licence", "storage"), SEARCH_SETTINGS),
    "ctranslate2": Format(export_for_ctranslate2),
    "onnx": Format(export_for_onnx, search=("max_length",)),
    "litert": Format(export_for_litert, search=("max_length",)),
}
