"""Exports a trained run as one SavedModel."""

from __future__ import annotations

from pathlib import Path

from keras_addnorm.runs.build import TrainedRun, as_user_errors
from keras_addnorm.serving import export_saved_model


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
