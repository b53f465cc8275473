"""Counts suspicious sentence pairs before a training begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from keras_addnorm.data import LineReport
from keras_addnorm.data.overlap import HeldOutTexts
from keras_addnorm.data.pair_faults import FAULTS, FaultCounter, Known
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.runs.errors import UserError

# What a training looks for; `keras-addnorm data` looks for all.
_LOOKED_FOR = (
    "duplicates",
    "copies",
    "broken_text",
    "invisible",
    "in_held_out",
    "unlike_lengths",
    "wrong_script",
)
_HINTS = frozenset(name for name in _LOOKED_FOR if not FAULTS[name].is_certain)


@dataclass(frozen=True)
class DataCheck:
    """How many training pairs look wrong. One pair may be counted more than once.

    Attributes:
        empty: A side has no text. Left out of the training.
        too_long: A side is longer than `training.max_length`, or its line than what is read. Left
            out of the training.
        duplicates: The same pair has come before.
        copies: Both sides are the same text.
        broken_text: A side has characters that stand for bytes of another encoding.
        in_validation: The pair is in the validation data, too.
        invisible: A side has controls, marks of direction, soft hyphens and the like, which the
            tokenizer leaves out.
        not_utf8: A side's line has bytes that are no UTF-8. Left out of the training.
        unlike_lengths: A side is far longer than usual for the other: a hint.
        wrong_script: A side is in an unusual script: a hint.
    """

    empty: int
    too_long: int
    duplicates: int
    copies: int
    broken_text: int
    in_validation: int
    not_utf8: int = 0
    invisible: int = 0
    unlike_lengths: int = 0
    wrong_script: int = 0

    @classmethod
    def of(
        cls,
        training: Iterable[tuple[str, str]],
        validation: Iterable[tuple[str, str]],
        report: PipelineReport,
        lines: Iterable[LineReport] = (),
    ) -> DataCheck:
        """Reads all pairs once.

        Args:
            training: The training pairs.
            validation: The validation pairs.
            report: What became of the training pairs.
            lines: What became of the lines that the training pairs were read from.

        Returns:
            The counts.
        """
        counter = FaultCounter(Known(HeldOutTexts(validation)), _LOOKED_FOR)
        for pair in training:
            counter.add(pair)
        counts = counter.counts()
        lines = list(lines)
        return cls(
            empty=report.empty + sum(split.empty for split in lines),
            too_long=report.too_long + sum(split.too_long for split in lines),
            in_validation=counts.pop("in_held_out"),
            not_utf8=sum(split.invalid_utf8 for split in lines),
            **counts,
        )

    def __str__(self) -> str:
        return _listed(dataclasses.asdict(self)) or "nothing suspicious"

    def require_clean(self) -> None:
        """Stops a strict training; hints do not.

        Raises:
            UserError: If anything certain was counted.
        """
        counts = {
            name: count for name, count in dataclasses.asdict(self).items() if name not in _HINTS
        }
        if any(counts.values()):
            raise UserError(
                f"The training pairs are not clean: {_listed(counts)}. Expected none of these with "
                "training.strict. Mend the files (`keras-addnorm data` writes a clean copy), raise "
                "training.max_length for those that are too long, or train without --strict."
            )


def _listed(counts: dict[str, int]) -> str:
    found = {name: count for name, count in counts.items() if count}
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.items())
