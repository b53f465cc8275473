"""What is wrong with sentence pairs, counted before a training begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from keras_addnorm.data.pipeline import PipelineReport
from keras_addnorm.runs.errors import UserError

# What a decoder of text puts where bytes were not of the encoding.
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class DataCheck:
    """How many training pairs look wrong. One pair may be counted more than once.

    Attributes:
        empty: A side has no text. Left out of the training.
        too_long: A side is longer than the largest bucket. Left out of the training.
        duplicates: The same pair has come before.
        copies: Both sides are the same text.
        broken_text: A side has characters that stand for bytes of another encoding.
        in_validation: The pair is in the validation data, too.
    """

    empty: int
    too_long: int
    duplicates: int
    copies: int
    broken_text: int
    in_validation: int

    @classmethod
    def of(
        cls,
        training: Iterable[tuple[str, str]],
        validation: Iterable[tuple[str, str]],
        report: PipelineReport,
    ) -> DataCheck:
        """Reads all pairs once.

        Args:
            training: The training pairs.
            validation: The validation pairs.
            report: What became of the training pairs.

        Returns:
            The counts.
        """
        held_out = set(validation)
        # Hashes: the texts themselves need not be in memory all at once.
        seen: set[int] = set()
        duplicates = copies = broken = shared = 0
        for pair in training:
            key = hash(pair)
            duplicates += key in seen
            seen.add(key)
            copies += bool(pair[0].strip()) and pair[0] == pair[1]
            broken += any(_REPLACEMENT in text for text in pair)
            shared += pair in held_out
        return cls(report.empty, report.too_long, duplicates, copies, broken, shared)

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
                "training.strict. Mend the files, raise training.bucket_lengths for those that "
                "are too long, or train without --strict."
            )
