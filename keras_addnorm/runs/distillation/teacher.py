"""A teacher: a run that translates, or a folder of translations that were made elsewhere."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.basics.languages import code_of
from keras_addnorm.basics.translation import Translation
from keras_addnorm.data.loading import open_translation
from keras_addnorm.data.request import Request
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.distillation.settings import DistillationConfig
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.nearest import nearest
from keras_addnorm.runs.portions import Portions
from keras_addnorm.runs.rows import Rows
from keras_addnorm.runs.settings import SEARCH_SETTINGS, RunConfig
from keras_addnorm.runs.translation_portions import RunTranslator
from keras_addnorm.training import sentence_scorer

# A source and its reference, if it has one.
Sourced = tuple[str, str | None]


def require_direction(directory: RunDirectory, source: str, target: str, role: str) -> RunConfig:
    """Reads the configuration of a trained run; refuses one that translates something else."""
    config = directory.read_config()
    directory.weights()
    found = code_of(config.source), code_of(config.target)
    if found != (code_of(source), code_of(target)):
        raise ArgumentError(
            f"The {role} {str(directory.path)!r} translates from {found[0]!r} to {found[1]!r}.",
            f"a run from {source!r} to {target!r}",
            "Choose another run; the languages of an imported one are those of its config.toml.",
        )
    return config


@dataclasses.dataclass(frozen=True)
class RunTeacher:
    """A run that translates.

    Attributes:
        translator: The run, with the search that the distillation has in place of its own.
    """

    translator: RunTranslator

    @classmethod
    def of(
        cls, directory: RunDirectory, config: RunConfig, settings: DistillationConfig
    ) -> RunTeacher:
        """Makes the teacher of a run.

        Args:
            directory: The run.
            config: Its configuration.
            settings: The distillation.

        Returns:
            The teacher.
        """
        search: dict[str, Any] = {
            "evaluation.num_beams": settings.beams,
            "evaluation.length_penalty": settings.length_penalty,
            "evaluation.length_penalty_kind": "average",
        }
        chosen = [key.rpartition(".")[2] for key in search]
        return cls(
            RunTranslator(
                directory,
                config.replace(search),
                n_best=settings.num_hypotheses,
                choose_by=settings.choose_by,
                # Stages name the others themselves, so that they can say which one has changed.
                digested=tuple(name for name in SEARCH_SETTINGS if name not in chosen),
            )
        )

    @property
    def directory(self) -> RunDirectory:
        """Its directory."""
        return self.translator.directory

    @property
    def config(self) -> RunConfig:
        """Its configuration."""
        return self.translator.config

    def made_from(self, settings: DistillationConfig) -> dict[str, Any]:
        """What its translations depend on."""
        fields = ("beams", "length_penalty", "choose_by")
        return {
            "teacher": self.translator.digest,
            "n_best": settings.num_hypotheses,
            **{name: getattr(settings, name) for name in fields},
        }

    def task(self, count: int) -> str:
        """What it does with so many sentences, in a line."""
        return f"The teacher {self.directory.path} translates {count:,} sentences."

    def pairs(self, sourced: Iterable[Sourced]) -> Iterator[Sourced]:
        """What it is to translate: everything."""
        yield from sourced

    def fill(
        self,
        portions: Portions[Sourced],
        pairs: Path,
        settings: DistillationConfig,
        done: Callable[[], object],
    ) -> None:
        """Translates what is not translated yet."""
        self.translator.fill(portions, pairs, settings.processes, done)


@dataclasses.dataclass(frozen=True)
class TranslatedText:
    """A folder or a file of translations that were made elsewhere.

    A source may have several translations, each in a pair of its own, the best first.

    Attributes:
        path: The folder or the file.
        translations: Those of each source.
        digest: Of all of them.
    """

    path: str
    translations: dict[str, list[str]]
    digest: str

    @classmethod
    def read(cls, path: str, source: str, target: str) -> TranslatedText:
        """Reads sentence pairs of any format that `--data` takes."""
        found: dict[str, list[str]] = {}
        digest = hashlib.sha256()
        with as_user_errors():
            for pair in open_translation(Request(path, source, target)).read("train"):
                found.setdefault(pair[0], []).append(pair[1])
                digest.update(json.dumps(pair).encode())
        return cls(path, found, digest.hexdigest()[:32])

    def made_from(self, settings: DistillationConfig) -> dict[str, Any]:
        """What the chosen translations depend on."""
        return {
            "teacher": self.digest,
            "n_best": settings.num_hypotheses,
            "choose_by": settings.choose_by,
        }

    def task(self, count: int) -> str:
        """What it does with so many sentences, in a line."""
        return f"Of the translations in {self.path} one is taken for each of {count:,} sentences."

    def pairs(self, sourced: Iterable[Sourced]) -> Iterator[Sourced]:
        """The sources that have a translation: first those of the data, then all others."""
        seen = set()
        for source, reference in sourced:
            if source in self.translations:
                seen.add(source)
                yield source, reference
        yield from ((source, None) for source in self.translations if source not in seen)

    def fill(
        self,
        portions: Portions[Sourced],
        pairs: Path,
        settings: DistillationConfig,
        done: Callable[[], object],
    ) -> None:
        """Chooses among the translations of each source."""
        nearness = sentence_scorer(settings.choose_by)

        def compute(batch: Sequence[Sourced]) -> list[Any]:
            return [
                nearest(
                    [
                        Translation(text, 0.0)
                        for text in self.translations[source][: settings.num_hypotheses]
                    ],
                    reference,
                    nearness,
                )
                for source, reference in batch
            ]

        read = Rows(pairs).read
        portions.fill(compute, read, lambda pair: 0, batch_size=portions.size, done=done)


Teacher = RunTeacher | TranslatedText


def open_teacher(config: RunConfig, settings: DistillationConfig, *, verify: bool) -> Teacher:
    """Finds out what a teacher is, and refuses one that cannot teach.

    Args:
        config: The student's configuration, which has the languages.
        settings: The distillation.
        verify: Whether files of a run are compared with their digests.

    Returns:
        The teacher.

    Raises:
        UserError: If there is nothing, it is a model that is no run, or of other languages.
    """
    path = Path(settings.teacher)
    directory = RunDirectory(path, verify=verify)
    if directory.config.exists() or directory.holds_parts():
        taught = require_direction(directory, config.source, config.target, "teacher")
        return RunTeacher.of(directory, taught, settings)
    if not path.exists():
        raise ArgumentError(
            f"There is no teacher {settings.teacher!r}.",
            "a run directory, or a folder or file of translations",
            ""
            if _is_surely_a_path(settings.teacher)
            else "A model of the hub is imported first: keras-addnorm import "
            f"{settings.teacher} runs/teacher.",
        )
    if path.is_dir() and any((path / name).exists() for name in ("config.json", "config.yml")):
        raise UserError(
            f"{settings.teacher!r} holds a model that is no run yet. Expected a run directory. "
            f"Import it: keras-addnorm import {settings.teacher} runs/teacher."
        )
    return TranslatedText.read(settings.teacher, config.source, config.target)


def _is_surely_a_path(text: str) -> bool:
    """Tells a path from the name of a model of the hub, such as `owner/name`."""
    path = Path(text)
    is_deep = len(path.parts) > 2 or (len(path.parts) == 2 and path.parent.is_dir())
    return is_deep or text.startswith(("/", "./", "../", "~", "runs/"))
