"""Makes a small model from a big one: translate, filter, add noise, train, compare."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm import distribution
from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.argument_checks import to_file
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.basics.integrity import digest_of_values, sha256
from keras_addnorm.data import TokenizerPair
from keras_addnorm.data.text_noise import TextNoise
from keras_addnorm.runs.checks_before_training import (
    require_place_to_go_on,
    require_trainable,
    usable_devices,
)
from keras_addnorm.runs.directory import RunDirectory, write_text
from keras_addnorm.runs.distillation import backward, card
from keras_addnorm.runs.distillation.beginning import (
    remembered,
    require_place,
    require_usable_settings,
)
from keras_addnorm.runs.distillation.card import Distilled
from keras_addnorm.runs.distillation.comparison import Figures, measure
from keras_addnorm.runs.distillation.corpus import (
    TEXT,
    held_out_splits,
    read_report,
    write_corpus,
    write_pairs,
)
from keras_addnorm.runs.distillation.settings import TABLE, DistillationConfig
from keras_addnorm.runs.distillation.stages import Stages
from keras_addnorm.runs.distillation.teacher import (
    RunTeacher,
    Sourced,
    Teacher,
    open_teacher,
    require_direction,
)
from keras_addnorm.runs.errors import as_user_errors, system_errors_as_user_errors
from keras_addnorm.runs.portion_progress import filling
from keras_addnorm.runs.portions import Portions, fill_in_processes, is_score, is_translation
from keras_addnorm.runs.rows import Rows, write_rows
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.terminal import show
from keras_addnorm.runs.text_data import (
    keep_standard_input,
    load_pairs,
    save_tokenizers,
    test_splits,
)
from keras_addnorm.runs.toml_files import to_toml
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import digest_of_run

EIGHT_BITS = "eight_bits"
"""The folder of the run with weights of eight bits, in that of the student."""
_CORPUS = "corpus"
# As in decision record 0027.
_RATE_OF_EIGHT_BITS = 0.0003


def distill(
    config: RunConfig,
    distillation: DistillationConfig,
    directory: str | Path | RunDirectory,
    *,
    say: Callable[[str], None] = show,
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
    require_place(directory, distillation)
    config.require_codes()
    require_usable_settings(config, distillation)
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
    stages = Stages(directory, say)
    student = _student(config, distillation, teacher, directory, stages.folder / _CORPUS / TEXT)
    require_trainable(student, directory)
    small, of_eight_bits = None, None
    if distillation.eight_bits_epochs:
        small = RunDirectory(directory.path / EIGHT_BITS, verify=directory.verify)
        of_eight_bits = _eight_bits(student, distillation, directory)
        usable_devices(of_eight_bits.training)
    with remembered(directory) as remember:
        with directory.locked(), system_errors_as_user_errors(directory.path):
            config = keep_standard_input(config, directory)
            text = to_toml({**config.to_dict(), TABLE: asdict(distillation)})
            # A trained student may refuse the text that they would make.
            if not directory.holds_parts():
                remember(text)
            corpus = _make_corpus(config, distillation, teacher, directory, stages, say)
            remember(text)
            if distillation.token_level:
                _take_tokenizers(teacher, directory)
        report = read_report(corpus)
        say(f"{report}: {corpus / TEXT}.")
        run = train(student, directory, say=say, verbose=verbose)
    if small is not None and of_eight_bits is not None:
        _begin_eight_bits(directory, small, stages)
        if len(small.read_log()) < distillation.eight_bits_epochs:
            directory.card.unlink(missing_ok=True)  # It has figures of this run, too.
        say(f"Fine-tuning with weights of eight bits: {small.path}.")
        train(of_eight_bits, small, say=say, verbose=verbose)
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
    translations = Portions[Sourced](
        stages.begin("translations", made_from), len(pairs), is_result=is_translation
    )
    if not translations.is_full:
        say(teacher.task(len(pairs)))
    with as_user_errors(), filling(translations, say) as done:
        teacher.fill(translations, path, settings, done)
    text_from: dict[str, Any] = {"translations": digest_of_values(made_from)}
    scores = None
    if settings.backward:
        other = RunDirectory(settings.backward, verify=directory.verify)
        digest = digest_of_run(other, other.read_config(), ())
        scored_from = {**text_from, "backward": digest}
        scores = Portions[backward.Pair](
            stages.begin("scores", scored_from), len(pairs), is_result=is_score
        )
        if not scores.is_full:
            say(f"The backward model {settings.backward} scores them.")
        job = {
            "backward": settings.backward,
            "verify": directory.verify,
            "digest": digest,
            "pairs": str(path),
            "translations": str(translations.folder),
            "folder": str(scores.folder),
        }
        with as_user_errors(), filling(scores, say) as done:
            fill_in_processes(backward.score_share, job, scores, settings.processes, done)
        text_from = {**scored_from, "drop_worst": settings.drop_worst}
    usual = TextNoise(seed=config.training.seed)
    noise = usual.scaled(settings.noise)
    held_out = held_out_splits(config)
    text_from |= {
        "noise": settings.noise,
        "seed": usual.seed,
        "usual shares of noise": digest_of_values(usual.shares),
        "held-out pairs": digest_of_values(held_out),
    }
    corpus = stages.begin(_CORPUS, text_from)
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
        data = before if Path(before).resolve() == text.resolve() else data
    changes: dict[str, Any] = {}
    if settings.token_level and isinstance(teacher, RunTeacher):
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
            "training.epochs": settings.eight_bits_epochs,
            # Its length is in epochs, each of which is a row of the log.
            "training.max_updates": 0,
            "training.validate_every": 0,
            "training.schedule": "constant",
            "training.peak_learning_rate": _RATE_OF_EIGHT_BITS,
            "training.cooldown_epochs": 0,
            "training.average_last": 1,
            "training.ema": 0.0,
            "training.lora_rank": 0,
        }
    )


def _take_tokenizers(teacher: Teacher, directory: RunDirectory) -> None:
    """Gives the student the teacher's vocabulary."""
    if isinstance(teacher, RunTeacher) and not directory.has_tokenizers():
        with as_user_errors():
            save_tokenizers(TokenizerPair.load(teacher.directory.tokenizer), directory)


def _begin_eight_bits(directory: RunDirectory, small: RunDirectory, stages: Stages) -> None:
    """Makes room for a run of eight bits from this student, with the same alignments.

    One that goes on is left as it is; one that was made from other weights is removed.
    """
    lock = small.locked() if small.path.exists() else contextlib.nullcontext()
    with lock, system_errors_as_user_errors(small.path):
        made_from = {"student": sha256(directory.weights())}
        stages.begin(EIGHT_BITS, made_from, is_text=False, place=small.path)
    if directory.alignments.exists() and not small.alignments.exists():
        small.path.mkdir(parents=True, exist_ok=True)
        directory.check(directory.alignments)
        with small.manifest.rewriting(small.alignments), atomic_file(small.alignments) as temporary:
            shutil.copyfile(to_file(directory.alignments), temporary)


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
