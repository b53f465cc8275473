"""Exports a trained run: as one SavedModel, or for another runtime."""

from __future__ import annotations

from pathlib import Path

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


def export(run: TrainedRun, directory: Path, version: int | None = None) -> Path:
    """Exports a run with the search that its configuration asks for.

    Args:
        run: A trained run.
        directory: The folder of the versions, such as `saved_models/<name>`.
        version: The version's number, or None for the next one.

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
        )
