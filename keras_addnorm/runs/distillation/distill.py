"""Makes a small model from a big one: translate, filter, add noise, train, compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm.data.text_noise import TextNoise
from keras_addnorm.runs.checks_before_training import require_consistent, require_place_to_go_on
from keras_addnorm.runs.directory import RunDirectory, write_text
from keras_addnorm.runs.distillation import backward, card
from keras_addnorm.runs.distillation.card import Distilled
from keras_addnorm.runs.distillation.comparison import Figures, measure
from keras_addnorm.runs.distillation.corpus import (
    TEXT,
    held_out_splits,
    read_report,
    write_corpus,
    write_pairs,
)
from keras_addnorm.runs.distillation.progress import filling
from keras_addnorm.runs.distillation.rows import Rows, write_rows
from keras_addnorm.runs.distillation.settings import TABLE, DistillationConfig
from keras_addnorm.runs.distillation.stages import Stages, fingerprint
from keras_addnorm.runs.distillation.teacher import (
    RunTeacher,
    Sourced,
    Teacher,
    digest_of_run,
    open_teacher,
    require_direction,
)
from keras_addnorm.runs.errors import as_user_errors, system_errors_as_user_errors
from keras_addnorm.runs.portions import Portions, fill_in_processes
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.text_data import keep_standard_input, load_pairs, test_splits
from keras_addnorm.runs.toml_files import to_toml
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import require_model_config

SETTINGS = "settings.toml"
"""What a distillation was begun with, in the folder of its stages."""


def distill(
    config: RunConfig,
    distillation: DistillationConfig,
    directory: str | Path | RunDirectory,
    *,
    say: Callable[[str], None] = print,
    verbose: int | str = "auto",
) -> Distilled:
    """Makes a student of a teacher, or goes on where an earlier call was stopped.

    The teacher translates the training pairs' sources, and those of monolingual files. Of a source
    with a reference, the hypothesis nearest to that is taken. A model of the other direction may
    filter, noise is added, and an ordinary training follows, whose run directory is an ordinary
    run. Then both are measured. Each stage is on the disk batch by batch, and is not done
    again. One that was made from other settings or files is made anew, which is said; once
    the student is trained on it, it is refused.

    Args:
        config: The student's configuration. Its `data` are what the teacher translates, with the
            pairs to validate and test on.
        distillation: How the teacher's translations become training text.
        directory: The student's run directory.
        say: Takes lines for the user.
        verbose: What `keras.Model.fit` prints.

    Returns:
        The student, and what was measured.

    Raises:
        UserError: If a setting, a model or the data cannot be used, or the student was begun with
            others.

    Reference:
        Kim and Rush, Sequence-Level Knowledge Distillation (2016), section 3.2 and 3.3.
    """
    directory = RunDirectory.of(directory)
    config.require_codes()
    require_consistent(config.training)
    require_model_config(config)
    require_place_to_go_on(directory)
    teacher = open_teacher(config, distillation, verify=directory.verify)
    if distillation.backward:
        other = RunDirectory(distillation.backward, verify=directory.verify)
        require_direction(other, config.target, config.source, "backward model")
    with directory.locked(), system_errors_as_user_errors(directory.path):
        config = keep_standard_input(config, directory)
        stages = Stages(directory, say)
        write_text(
            stages.folder / SETTINGS,
            to_toml({**config.to_dict(), TABLE: asdict(distillation)}),
        )
        corpus = _make_corpus(config, distillation, teacher, directory, stages, say)
    report = read_report(corpus)
    say(f"{report}: {corpus / TEXT}.")
    student = _student(config, teacher, directory, corpus / TEXT)
    run = train(student, directory, say=say, verbose=verbose)
    split = next(iter(sorted(test_splits(student), key=lambda name: name != "test")), "validation")
    with system_errors_as_user_errors(directory.path):
        figures = _compare(student, split, distillation, teacher, directory, stages, say)
    found = Distilled(run, report, *figures, split)
    write_text(directory.card, card.text(found, distillation))
    return found


def _make_corpus(
    config: RunConfig,
    settings: DistillationConfig,
    teacher: Teacher,
    directory: RunDirectory,
    stages: Stages,
    say: Callable[[str], None],
) -> Path:
    """Makes the student's text, as far as it is not there; returns the folder of that stage."""
    path = stages.folder / "pairs.jsonl"
    digest = write_pairs(config, settings.monolingual, teacher, path)
    pairs = Rows(path)
    made_from = {"pairs": digest, **teacher.made_from(settings)}
    translations = Portions[Sourced](stages.begin("translations", made_from), len(pairs))
    if not translations.is_full:
        say(f"The teacher {settings.teacher} translates {len(pairs):,} sentences.")
    with as_user_errors(), filling(translations, say) as done:
        teacher.fill(translations, path, settings, done)
    scores = None
    if settings.backward:
        other = RunDirectory(settings.backward, verify=directory.verify)
        scored_from = {"translations": fingerprint(made_from), "backward": digest_of_run(other, ())}
        scores = Portions[backward.Pair](stages.begin("scores", scored_from), len(pairs))
        if not scores.is_full:
            say(f"The backward model {settings.backward} scores them.")
        job = {
            "backward": settings.backward,
            "verify": directory.verify,
            "pairs": str(path),
            "translations": str(translations.folder),
            "folder": str(scores.folder),
        }
        with as_user_errors(), filling(scores, say) as done:
            fill_in_processes(backward.score_share, job, scores, settings.processes, done)
        made_from = {**scored_from, "drop_worst": settings.drop_worst}
    noise = TextNoise(seed=config.training.seed).scaled(settings.noise)
    held_out = held_out_splits(config)
    text_from = {
        "translations": fingerprint(made_from),
        "noise": asdict(noise),
        "held-out pairs": fingerprint(held_out),
    }
    corpus = stages.begin("corpus", text_from)
    if not corpus.exists():
        with as_user_errors():
            is_kept = (
                np.ones(len(pairs), bool)
                if scores is None
                else backward.kept(scores, settings.drop_worst)
            )
            languages = config.source, config.target
            write_corpus(corpus, languages, pairs, translations, is_kept, noise, held_out)
    return corpus


def _student(config: RunConfig, teacher: Teacher, directory: RunDirectory, text: Path) -> RunConfig:
    """The configuration of the student's training, which reads the text that was made."""
    data = str(text)
    # The same folder may be named otherwise now, as from another working directory.
    if directory.config.exists():
        before = directory.read_config().data
        data = before if Path(before).exists() and text.samefile(before) else data
    changes: dict[str, Any] = {
        "data": data,
        "data_format": "auto",
        "source_column": "",
        "target_column": "",
        "split": "train",
        "validation": "",
    }
    if not config.licence and isinstance(teacher, RunTeacher):
        changes["licence"] = teacher.config.licence
    return config.replace(changes)


def _compare(
    student: RunConfig,
    split: str,
    settings: DistillationConfig,
    teacher: Teacher,
    directory: RunDirectory,
    stages: Stages,
    say: Callable[[str], None],
) -> tuple[Figures | None, Figures]:
    """Measures the teacher, if it can translate, and the student."""
    test = stages.folder / "test.jsonl"
    digest = write_rows(test, load_pairs(student, split, keep_every_pair=True))
    say(f"Comparing both on {split!r} ...")
    common = (test, digest, settings.processes, say)
    of_teacher = None
    if isinstance(teacher, RunTeacher):
        of_teacher = measure(stages, "test_of_teacher", teacher.directory, *common)
    return of_teacher, measure(stages, "test_of_student", directory, *common)
