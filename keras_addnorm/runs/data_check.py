"""Counts suspicious sentence pairs before a training begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from keras_addnorm.data import LineReport
from keras_addnorm.data.characters import has_invisible
from keras_addnorm.data.pipeline_report import PipelineReport
from keras_addnorm.runs.errors import UserError

# What a decoder of text puts where bytes were not of the encoding.
_REPLACEMENT = "\ufffd"


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
    """

    empty: int
    too_long: int
    duplicates: int
    copies: int
    broken_text: int
    in_validation: int
    not_utf8: int = 0
    invisible: int = 0

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
        held_out = set(validation)
        # Hashes: the texts themselves need not be in memory all at once.
        seen: set[int] = set()
        duplicates = copies = broken = shared = invisible = 0
        for pair in training:
            key = hash(pair)
            duplicates += key in seen
            seen.add(key)
            copies += bool(pair[0].strip()) and pair[0] == pair[1]
            broken += any(_REPLACEMENT in text for text in pair)
            shared += pair in held_out
            invisible += any(map(has_invisible, pair))
        lines = list(lines)
        return cls(
            empty=report.empty + sum(split.empty for split in lines),
            too_long=report.too_long + sum(split.too_long for split in lines),
            duplicates=duplicates,
            copies=copies,
            broken_text=broken,
            in_validation=shared,
            not_utf8=sum(split.invalid_utf8 for split in lines),
            invisible=invisible,
        )

    def __str__(self) -> str:
        found = {name: count for name, count in dataclasses.asdict(self).items() if count}
        if not found:
            return "nothing suspicious"
        return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.items())

    def require_clean(self) -> None:
        """Stops a strict training.

        Raises:
            UserError: If anything was counted.
        """
        if any(dataclasses.astuple(self)):
            raise UserError(
                f"The training pairs are not clean: {self}. Expected none of these with "
                "training.strict. Mend the files, raise training.max_length for those that "
                "are too long, or train without --strict."
            )
