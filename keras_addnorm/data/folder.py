"""A TensorFlow Datasets builder for a folder of parallel text. Import it late: it imports TFDS."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import tensorflow_datasets as tfds

from keras_addnorm.data.text_files import (
    LineChecker,
    LineReport,
    ParallelFiles,
    content_fingerprint,
    find_parallel_files,
)
from keras_addnorm.data.tfds_common import quietly, translation_info

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class ParallelTextConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """The files, their languages, and the longest line to keep."""

    languages: tuple[str, str] = ("", "")
    files: tuple[ParallelFiles, ...] = ()
    max_chars: int = 1000


class ParallelText(  # type: ignore[call-arg]
    tfds.core.GeneratorBasedBuilder,  # type: ignore[misc]
    skip_registration=True,
):
    """Prepares a folder of parallel text of any size and reports its unusable lines."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return translation_info(
            self, self.builder_config.languages, "Sentence pairs from a folder of parallel text."
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[tuple[int, dict[str, str]]]]:
        del dl_manager
        for files in self.builder_config.files:
            files.check_line_counts()
        return {files.split: self._generate_examples(files) for files in self.builder_config.files}

    def _generate_examples(self, files: ParallelFiles) -> Iterator[tuple[int, dict[str, str]]]:
        source, target = self.builder_config.languages
        checker = LineChecker(files.split, self.builder_config.max_chars)
        pairs = files.pairs(checker)
        yield from enumerate({source: first, target: second} for first, second in pairs)
        self._keep(checker.report(), files)

    def _keep(self, report: LineReport, files: ParallelFiles) -> None:
        """Logs a report and stores it with the data, where `line_reports` reads it."""
        if not report.kept:
            raise ValueError(
                f"{files.source.name} and {files.target.name} hold no pair that can be used "
                f"({report}). Each line needs text on both sides, in UTF-8, of at most "
                f"{report.max_chars:,} characters."
            )
        _LOGGER.log(logging.WARNING if report.left_out else logging.INFO, "%s", report)
        self.info.metadata[report.split] = dataclasses.asdict(report)

    def line_reports(self) -> dict[str, LineReport]:
        """The stored report of each split, once the data is prepared."""
        reports = {}
        for split, fields in self.info.metadata.items():
            fields = {**fields, "first_bad_lines": tuple(fields["first_bad_lines"])}
            reports[split] = LineReport(**fields)
        return reports


def folder_builder(
    folder: str | os.PathLike[str],
    source: str,
    target: str,
    *,
    max_chars: int = 1000,
    data_dir: str | os.PathLike[str] | None = None,
) -> ParallelText:
    """Makes the TensorFlow Datasets builder of a folder of parallel text.

    The name of the prepared data contains a fingerprint of the files' contents, so a changed file
    is prepared again and an unchanged one is not. Both directions share the data.

    Args:
        folder: The folder, with files such as ``train.en`` and ``train.de.gz``.
        source: One language, as in the files' names.
        target: The other language.
        max_chars: The longest line to keep, in characters.
        data_dir: Where prepared data is kept; by default where TensorFlow Datasets keeps it.

    Returns:
        A builder that is not prepared yet.

    Raises:
        FileNotFoundError: If there is no such folder, or a split has one side only.
    """
    folder = Path(folder).expanduser()
    languages = (min(source, target), max(source, target))
    files = find_parallel_files(folder, *languages)
    label = re.sub(r"\W+", "_", folder.resolve().name).strip("_") or "text"
    config = ParallelTextConfig(
        name=f"{label}-{'-'.join(languages)}-{content_fingerprint(files, max_chars)}",
        languages=languages,
        files=files,
        max_chars=max_chars,
    )
    with quietly():
        return ParallelText(config=config, data_dir=data_dir)
