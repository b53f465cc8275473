"""Counts suspicious sentence pairs before a training begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from keras_addnorm.basics.errors import UserError
from keras_addnorm.data import LineReport
from keras_addnorm.data.pair_faults import FAULTS
from keras_addnorm.data.pipeline_report import PipelineReport


@dataclass(frozen=True)
class DataCheck:
    """How many training pairs look wrong.

    Attributes:
        left_out: The pairs that are not trained on, by reason: a side is empty, is longer than
            `training.max_length` (or its line than what is read), or is not UTF-8; its row has more
            columns than the others; it has a zero character.
        faults: The pairs with each of `FAULTS`, by name. One pair may have several.
    """

    left_out: Mapping[str, int]
    faults: Mapping[str, int]

    @classmethod
    def of(
        cls,
        faults: Mapping[str, int],
        report: PipelineReport,
        lines: Iterable[LineReport] = (),
        expected: Iterable[str] = (),
    ) -> DataCheck:
        """Puts together what is known of pairs that have been read; `expected` faults are none."""
        lines = list(lines)
        left_out = {
            "empty": report.empty + sum(split.empty for split in lines),
            "too_long": report.too_long + sum(split.too_long for split in lines),
            "not_utf8": sum(split.invalid_utf8 for split in lines),
            "surplus_columns": sum(split.surplus for split in lines),
            "zero_characters": sum(split.no_text for split in lines),
        }
        counted = {*FAULTS} - {*expected}
        return cls(left_out, {name: n for name, n in faults.items() if name in counted})

    def __str__(self) -> str:
        hints = {name: n for name, n in self.faults.items() if not FAULTS[name].is_certain}
        found = [_listed(self._certain())] if any(self._certain().values()) else []
        found += [
            f"perhaps {_listed({name: count})} ({FAULTS[name].says})"
            for name, count in hints.items()
            if count
        ]
        return "; ".join(found) or "no pair has a fault"

    def require_clean(self) -> None:
        """Stops a strict training; hints do not."""
        if any(self._certain().values()):
            raise UserError(
                f"The training pairs are not clean: {_listed(self._certain())}. Expected none of "
                "these with training.strict. Mend the files (`keras-addnorm data` writes a clean "
                "copy), raise training.max_length for those that are too long, or train without "
                "--strict."
            )

    def _certain(self) -> dict[str, int]:
        faults = {name: count for name, count in self.faults.items() if FAULTS[name].is_certain}
        return {**self.left_out, **faults}


def _listed(counts: Mapping[str, int]) -> str:
    found = {name: count for name, count in counts.items() if count}
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.items())
