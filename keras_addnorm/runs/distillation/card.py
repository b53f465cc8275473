"""The card of a student: what it is, how it was made, and teacher and student beside each other."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from keras_addnorm.runs.distillation.comparison import TIMED_SENTENCES, Figures, table
from keras_addnorm.runs.distillation.corpus import CorpusReport
from keras_addnorm.runs.distillation.settings import DistillationConfig
from keras_addnorm.runs.trained_run import TrainedRun


@dataclass(frozen=True)
class Distilled:
    """A student.

    Attributes:
        run: Its run.
        report: What became of the teacher's translations.
        teacher: The teacher's figures; `None` of a folder of translations.
        student: The student's.
        eight_bits: The student's with weights of eight bits; `None` without.
        split: What they were measured on.
    """

    run: TrainedRun
    report: CorpusReport
    teacher: Figures | None
    student: Figures
    eight_bits: Figures | None
    split: str


def comparison(found: Distilled) -> str:
    """Lays out the figures of teacher and student."""
    columns = {"teacher": found.teacher, "student": found.student}
    if found.eight_bits is not None:
        columns["student, eight bits"] = found.eight_bits
    return table(columns)


def text(found: Distilled, settings: DistillationConfig) -> str:
    """Writes the card in Markdown."""
    config, model = found.run.config, found.run.model.config
    header = f"---\nlicense: {config.licence}\n---\n" if config.licence else ""
    bleu, chrf = found.student.signatures
    chosen = (
        f"beam {settings.beams}; of {settings.num_hypotheses} hypotheses the one nearest to the "
        f"reference by {settings.choose_by}"
        if found.teacher is not None
        else f"of the translations of a source the one nearest to the reference by "
        f"{settings.choose_by}"
    )
    filtered = f"the worst {settings.drop_worst:.0%} by {settings.backward}"
    return f"""\
{header}# {config.source} to {config.target}, distilled

A student of `{settings.teacher}`: {model.num_encoder_layers} + {model.num_decoder_layers} layers of
width {model.hidden_dim}, preset `{config.model.preset}`, {model.target_vocabulary_size:,} pieces.

{comparison(found)}
Measured on the split `{found.split}`, each with the search of its run. The speed is that of
{TIMED_SENTENCES} sentences at most, in batches,
on one core ({platform.machine()}), when all is compiled.
The size is that of weights in float32, in which all of these compute; where matrices lie on the
grid of eight bits, a byte counts for each of their weights, as programs store them that compute
with whole numbers.
BLEU: `{bleu}`. chrF: `{chrf}`.

| made with | |
|---|---|
| hypotheses | {chosen} |
| text | {found.report} |
| filter | {filtered if settings.backward else "none"} |
| noise | {settings.noise:g} times the usual shares |
| licence | {config.licence or "that of the teacher and of the text; none is named"} |
"""
