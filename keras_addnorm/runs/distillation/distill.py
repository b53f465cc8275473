"""Makes a small model from a big one: translate, filter, add noise, train, compare."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm import distribution
from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.data import TokenizerPair
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
from keras_addnorm.runs.distillation.settings import SETTINGS, TABLE, DistillationConfig
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
from keras_addnorm.runs.text_data import (
    keep_standard_input,
    load_pairs,
    save_tokenizers,
    test_splits,
)
from keras_addnorm.runs.toml_files import to_toml
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import require_model_config

EIGHT_BITS = "eight_bits"
"""The folder of the run with weights of eight bits, in that of the student."""
# As in decision record 0027.
_RATE_OF_EIGHT_BITS = 0.0003


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
    if distribution.process_count() > 1:
        raise UserError(
            "A distillation is the work of one process on one machine, and of those that it starts "
            f"itself. Received: {distribution.process_count()} processes that train together. Make "
            "the text with one (--processes for more), and train on it with keras-addnorm train."
        )
    config.require_codes()
    require_consistent(config.training)
    require_model_config(config)
    require_place_to_go_on(directory)
    teacher = open_teacher(config, distillation, verify=directory.verify)
    if distillation.token_level and not isinstance(teacher, RunTeacher):
        raise ArgumentError(
            "Text has no distribution over tokens.",
            "a run as `teacher`, with `token_level`",
            teacher=distillation.teacher,
        )
    if distillation.backward:
        other = RunDirectory(distillation.backward, verify=directory.verify)
        require_direction(other, config.target, config.source, "backward model")
    with directory.locked(), system_errors_as_user_errors(directory.path):
        config = keep_standard_input(config, directory)
        stages = Stages(directory, say)
        text = to_toml({**config.to_dict(), TABLE: asdict(distillation)})
        # Settings that a trained student refuses are not remembered.
        if not directory.holds_parts():
            write_text(stages.folder / SETTINGS, text)
        corpus = _make_corpus(config, distillation, teacher, directory, stages, say)
        write_text(stages.folder / SETTINGS, text)
    report = read_report(corpus)
    say(f"{report}: {corpus / TEXT}.")
    student = _student(config, distillation, teacher, directory, corpus / TEXT)
    run = train(student, directory, say=say, verbose=verbose)
    small = None
    if distillation.eight_bits:
        small = RunDirectory(directory.path / EIGHT_BITS, verify=directory.verify)
        say(f"Fine-tuning with weights of eight bits: {small.path}.")
        _share_alignments(directory, small)
        train(_eight_bits(student, distillation, directory), small, say=say, verbose=verbose)
    split = next(iter(sorted(test_splits(student), key=lambda name: name != "test")), "validation")
    with system_errors_as_user_errors(directory.path):
        runs = {"student": directory} | ({} if small is None else {EIGHT_BITS: small})
        if isinstance(teacher, RunTeacher):
            runs["teacher"] = teacher.directory
        figures = _compare(student, split, distillation, runs, stages, say)
    found = Distilled(
        run, report, figures.get("teacher"), figures["student"], figures.get(EIGHT_BITS), split
    )
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


def _student(
    config: RunConfig,
    settings: DistillationConfig,
    teacher: Teacher,
    directory: RunDirectory,
    text: Path,
) -> RunConfig:
    """The configuration of the student's training, which reads the text that was made."""
    data = str(text)
    # The same folder may be named otherwise now, as from another working directory.
    if directory.config.exists():
        before = directory.read_config().data
        data = before if Path(before).exists() and text.samefile(before) else data
    changes: dict[str, Any] = {}
    if settings.token_level and isinstance(teacher, RunTeacher):
        if not directory.has_tokenizers():
            with as_user_errors():
                save_tokenizers(TokenizerPair.load(teacher.directory.tokenizer), directory)
        own = asdict(teacher.config.tokenizer)
        changes = {f"tokenizer.{name}": value for name, value in own.items()}
        changes["training.teacher"] = settings.teacher
    changes |= {
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


def _eight_bits(
    student: RunConfig, settings: DistillationConfig, directory: RunDirectory
) -> RunConfig:
    """The configuration of the fine-tuning with weights of eight bits."""
    return student.replace(
        {
            "training.start_from": str(directory.path),
            "training.eight_bits": True,
            "training.epochs": settings.eight_bits,
            "training.schedule": "constant",
            "training.peak_learning_rate": _RATE_OF_EIGHT_BITS,
            "training.cooldown_epochs": 0,
            "training.average_last": 1,
            "training.ema": 0.0,
            "training.lora_rank": 0,
        }
    )


def _share_alignments(directory: RunDirectory, other: RunDirectory) -> None:
    """Copies the alignments of the training pairs to another run on them."""
    if directory.alignments.exists() and not other.alignments.exists():
        other.path.mkdir(parents=True, exist_ok=True)
        directory.check(directory.alignments)
        with other.manifest.rewriting(other.alignments), atomic_file(other.alignments) as temporary:
            shutil.copyfile(directory.alignments, temporary)


def _compare(
    student: RunConfig,
    split: str,
    settings: DistillationConfig,
    runs: dict[str, RunDirectory],
    stages: Stages,
    say: Callable[[str], None],
) -> dict[str, Figures]:
    """Measures the runs."""
    test = stages.folder / "test.jsonl"
    digest = write_rows(test, load_pairs(student, split, keep_every_pair=True))
    say(f"Comparing {', '.join(runs)} on {split!r} ...")
    return {
        name: measure(stages, f"test_of_{name}", run, test, digest, settings.processes, say)
        for name, run in runs.items()
    }
