"""Shared code of our TensorFlow Datasets builders. Imports TensorFlow Datasets: import it late."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator

import tensorflow_datasets as tfds
from tensorflow_datasets.core.utils import tqdm_utils


def translation_info(
    builder: tfds.core.DatasetBuilder, languages: tuple[str, str], description: str
) -> tfds.core.DatasetInfo:
    """Describes a set of sentence pairs whose order on disk is the order of generation.

    Args:
        builder: The builder that is described.
        languages: The two languages; the first is the source of ``as_supervised``.
        description: A description of the set for people.

    Returns:
        The description that TFDS stores with the data.
    """
    return tfds.core.DatasetInfo(
        builder=builder,
        description=description,
        features=tfds.features.Translation(languages=languages),
        supervised_keys=languages,
        # A test set keeps the order of its file, so that outputs can be compared line by line.
        disable_shuffling=True,
        metadata=tfds.core.MetadataDict(),
    )


def prepare(builder: tfds.core.DatasetBuilder) -> None:
    """Prepares a set, unless its data exists or another process has prepared it meanwhile."""
    try:
        builder.download_and_prepare()
    except OSError:
        if not builder.is_prepared():
            raise
        builder.info.read_from_directory(builder.data_dir)


def prepare_quietly(builder: tfds.core.DatasetBuilder) -> None:
    """Prepares a set that needs no download, without progress bars and messages."""
    shown = getattr(tqdm_utils, "_active", True)
    tfds.display_progress_bar(False)
    try:
        with quietly(), contextlib.redirect_stdout(io.StringIO()):
            prepare(builder)
    finally:
        tfds.display_progress_bar(shown)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silences TFDS' warnings about configurations and folders that it does not know."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
