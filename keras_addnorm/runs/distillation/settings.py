"""The settings of a distillation, which stand in the table `distillation` of a file."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keras_addnorm.basics.fields import (
    Rule,
    Setting,
    check_settings,
    check_types,
    from_table,
    list_settings,
    setting,
)
from keras_addnorm.runs.choices import SENTENCE_METRICS
from keras_addnorm.runs.settings import RunConfig

TABLE = "distillation"
SETTINGS = "settings.toml"
"""What a distillation was begun with, in the folder of its stages."""

# A student learns from a teacher's sentences, which are simpler than people's: nothing has to hold
# it back.
STUDENT_DEFAULTS = {
    "model.preset": "student-base-memory",
    "model.dropout": 0.0,
    "training.label_smoothing": 0.0,
    "training.guided_alignment": 0.1,
}
# What a distillation sets itself.
_SET_HERE = ("training.teacher", "training.eight_bits")
# What presets of students have in their own way.
_OF_THE_PRESET = ("model.scheme", "model.self_attention")


@dataclass(frozen=True)
class DistillationConfig:
    """How a teacher's translations become training text.

    Attributes:
        teacher: A run directory (trained or imported), or a folder or file of translations.
        monolingual: Text files with more sentences of the source language.
        backward: A run directory of the other direction, to filter with.
        drop_worst: Share of the pairs that the filter leaves out.
        beams: Beam width of the teacher.
        n_best: Number of hypotheses that are compared with the reference; by default `beams`.
        length_penalty: Exponent of the teacher's length penalty, n^length_penalty.
        choose_by: How nearness to the reference is measured.
        noise: Factor of the shares of `TextNoise`.
        processes: Number of processes that translate.
        token_level: Whether the student has the teacher's vocabulary, and learns its distribution
            over each token, too.
        eight_bits_epochs: Epochs of fine-tuning with weights of eight bits.
    """

    teacher: str = setting(
        "",
        "run directory of the teacher, trained here or imported; or a folder or file of sentence "
        "pairs whose target side is what a teacher elsewhere said",
        metavar="DIR|FILE",
    )
    monolingual: tuple[str, ...] = setting(
        (), "text files with more sentences of the source language, one a line", metavar="FILE"
    )
    backward: str = setting(
        "",
        "run directory of a model of the other direction: pairs whose source it finds improbable "
        "are left out",
        metavar="DIR",
    )
    drop_worst: float = setting(
        0.05, "share of the pairs that are left out by backward", minimum=0, below=1
    )
    beams: int = setting(8, "beam width of the teacher", flag="teacher-beams", minimum=1)
    n_best: int | None = setting(
        None,
        "number of the teacher's hypotheses that are compared with the reference; by default as "
        "many as its beams",
        minimum=1,
    )
    length_penalty: float = setting(
        1.0,
        "exponent of the teacher's length penalty, n^X for n tokens",
        flag="teacher-length-penalty",
        minimum=0,
    )
    choose_by: str = setting(
        "chrf", "how near a hypothesis is to the reference", choices=SENTENCE_METRICS
    )
    noise: float = setting(
        1.0,
        "noise in the training text, against which the student becomes robust: factor of the "
        "usual shares; 0 = none",
        minimum=0,
    )
    processes: int = setting(1, "number of processes that translate", minimum=1)
    token_level: bool = setting(
        False,
        "give the student the teacher's vocabulary, and its distribution over each token as a "
        "second target",
    )
    eight_bits_epochs: int = setting(
        0,
        "then fine-tune N epochs with weights of eight bits, in RUN_DIR/eight_bits; 0 = do not",
        minimum=0,
    )

    def __post_init__(self) -> None:
        check_types(self, TABLE)
        rules = [
            Rule("teacher", bool(self.teacher.strip()), "a run directory, or a folder or file"),
            Rule(
                "n_best",
                self.num_hypotheses <= self.beams,
                # By its name alone, so that a command has its flag for it, given or not.
                f"at most `beams`, which is {self.beams}",
            ),
        ]
        check_settings(self, TABLE, rules)

    @property
    def num_hypotheses(self) -> int:
        """The number of hypotheses that are compared with the reference."""
        return self.beams if self.n_best is None else self.n_best

    @staticmethod
    def settings() -> list[Setting]:
        """Lists the settings, as the command line sees them."""
        return list(list_settings(DistillationConfig, f"{TABLE}."))

    @staticmethod
    def settings_of_students() -> list[Setting]:
        """Lists the settings of a student's run, with a student's defaults."""
        defaults = {**dict.fromkeys(_OF_THE_PRESET), **STUDENT_DEFAULTS}
        return [
            dataclasses.replace(one, default=defaults.get(one.key, one.default))
            for one in list_settings(RunConfig)
            if one.key not in _SET_HERE
        ]

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> DistillationConfig:
        """Makes the settings of the table `distillation`; a `UserError` names what is wrong."""
        return typing.cast(DistillationConfig, from_table(cls, settings, f"{TABLE}."))


def student_config(settings: Mapping[str, Any]) -> RunConfig:
    """Makes a student's configuration of settings by dotted key, and of a student's defaults."""
    return RunConfig().replace({**STUDENT_DEFAULTS, **settings})
