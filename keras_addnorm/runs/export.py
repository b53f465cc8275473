"""Exports a trained run: as one SavedModel, or for another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras_addnorm.interop import export_ctranslate2
from keras_addnorm.runs.build import TrainedRun, as_user_errors
from keras_addnorm.serving import export_saved_model


def export_for_ctranslate2(run: TrainedRun, directory: Path) -> Path:
    """Exports a run for CTranslate2, which is told how to search when it translates.

    Args:
        run: A trained run.
        directory: The folder to make.

    Returns:
        The folder.

    Raises:
        UserError: If the folder exists, CTranslate2 is missing, or cannot say the model.
    """
    with as_user_errors():
        return export_ctranslate2(run.model, run.tokenizers, directory)


def export(
    run: TrainedRun, directory: Path, version: int | None = None, licence: str | None = None
) -> Path:
    """Exports a run with the search that its configuration asks for.

    Its card says what the run was trained on and the scores that `evaluate` found.

    Args:
        run: A trained run.
        directory: The folder of the versions, such as `saved_models/<name>`.
        version: The version's number, or None for the next one.
        licence: Under which licence the model may be used, for its card.

    Returns:
        The folder of the new version.

    Raises:
        UserError: If the version exists already.
    """
    search = run.config.evaluation
    with as_user_errors():
        return export_saved_model(
            run.model,
            run.tokenizers,
            directory,
            version,
            num_beams=search.num_beams,
            length_penalty=search.length_penalty,
            max_length=search.max_length,
            card=_card(run, licence),
        )


def _card(run: TrainedRun, licence: str | None) -> dict[str, Any]:
    config = run.config
    data = Path(config.data)
    # Of a folder, only its name: where it lies is nobody's business.
    name = data.resolve().name if data.exists() else config.data
    return {
        "training_data": {"name": name, "source": config.source, "target": config.target},
        "scores": run.directory.read_scores(),
        "licence": licence,
    }
