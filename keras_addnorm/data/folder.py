"""A TensorFlow Datasets builder for files of sentence pairs. Import it late: it imports TFDS."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import re
from collections.abc import Iterator, Sequence

import tensorflow_datasets as tfds

from keras_addnorm.basics.languages import require_code
from keras_addnorm.basics.paths import to_path
from keras_addnorm.data.pair_sources import PairSource
from keras_addnorm.data.text_files import (
    LineChecker,
    LineReport,
    content_fingerprint,
    find_parallel_files,
    readable,
)
from keras_addnorm.data.tfds_common import quietly, translation_info

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class ParallelTextConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """The files, their languages, the longest line to keep, and whether the others are kept, too.

    Attributes:
        languages: The two languages.
        files: What the pairs of each split are read from, in order.
        max_chars: The longest line to keep, in characters.
        keep_every_pair: Whether a pair that cannot be used is kept all the same, with U+FFFD for
            bytes that are not UTF-8: a test set has as many pairs as its file has lines.
    """

    languages: tuple[str, str] = ("", "")
    files: tuple[PairSource, ...] = ()
    max_chars: int = 1000
    keep_every_pair: bool = False


class ParallelText(  # type: ignore[call-arg]
    tfds.core.GeneratorBasedBuilder,  # type: ignore[misc]
    skip_registration=True,
):
    """Prepares sentence pairs of any number and reports the lines that cannot be used."""

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
            files.check()
        by_split = itertools.groupby(self.builder_config.files, key=lambda files: files.split)
        return {split: self._generate_examples(tuple(files)) for split, files in by_split}

    def _generate_examples(
        self, sources: Sequence[PairSource]
    ) -> Iterator[tuple[int, dict[str, str]]]:
        first, second = self.builder_config.languages
        checker = LineChecker(sources[0].split, self.builder_config.max_chars)
        for index, pair in enumerate(self._pairs(sources, checker)):
            yield index, dict(zip((first, second), pair, strict=True))
        self._keep(checker.report(), sources)

    def _pairs(
        self, sources: Sequence[PairSource], checker: LineChecker
    ) -> Iterator[tuple[str, str]]:
        for files in sources:
            for raw in files.raw_pairs():
                place = f"{files.place}:{raw.line}" if len(sources) > 1 else raw.line
                pair = checker.check(raw.source, raw.target, place, raw.has_surplus)
                if pair is not None:
                    yield pair
                elif self.builder_config.keep_every_pair:
                    yield readable(raw.source), readable(raw.target)

    def _keep(self, report: LineReport, sources: Sequence[PairSource]) -> None:
        """Logs a report and stores it with the data, where `line_reports` reads it."""
        if not report.kept:
            raise ValueError(
                f"{', '.join(files.label for files in sources[:3])} hold no pair that can be used "
                f"({report}). Each line needs text on both sides, in UTF-8, of at most "
                f"{report.max_chars:,} characters."
            )
        if not self.builder_config.keep_every_pair:
            _LOGGER.log(logging.WARNING if report.left_out else logging.INFO, "%s", report)
        self.info.metadata[report.split] = dataclasses.asdict(report)

    def line_reports(self) -> dict[str, LineReport]:
        """The stored report of each split, once the data is prepared."""
        reports = {}
        for split, fields in self.info.metadata.items():
            fields = {**fields, "first_bad_lines": tuple(fields["first_bad_lines"])}
            reports[split] = LineReport(**fields)
        return reports


def pairs_builder(
    name: str,
    sources: Sequence[PairSource],
    languages: tuple[str, str],
    *,
    max_chars: int = 1000,
    keep_every_pair: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
) -> ParallelText:
    """Makes the TensorFlow Datasets builder of sentence pairs in files.

    The name of the prepared data contains a fingerprint of the files' contents, so a changed file
    is prepared again and an unchanged one is not.

    Args:
        name: A name for people.
        sources: What the pairs are read from; those of a split follow each other.
        languages: The languages of the two texts that `sources` give.
        max_chars: The longest line to keep, in characters.
        keep_every_pair: Whether pairs that cannot be used are kept as well.
        data_dir: Where prepared data is kept; by default where TensorFlow Datasets keeps it.

    Returns:
        A builder that is not prepared yet.

    Raises:
        ValueError: If a language is no code.
    """
    for language in languages:
        require_code("language", language)  # It is part of the name of a folder.
    label = re.sub(r"\W+", "_", name).strip("_") or "text"
    mark = "-every" if keep_every_pair else ""
    config = ParallelTextConfig(
        name=f"{label}-{'-'.join(languages)}-{content_fingerprint(sources, max_chars)}{mark}",
        languages=languages,
        files=tuple(sources),
        max_chars=max_chars,
        keep_every_pair=keep_every_pair,
    )
    with quietly():
        return ParallelText(config=config, data_dir=data_dir)


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
    folder = to_path(folder).expanduser()
    languages = (min(source, target), max(source, target))
    files = find_parallel_files(folder, *languages)
    return pairs_builder(
        folder.resolve().name, files, languages, max_chars=max_chars, data_dir=data_dir
    )
