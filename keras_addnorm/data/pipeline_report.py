"""Counts of a training data set: pairs, tokens, batches and padding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PipelineReport:
    """Counts of a training data set. Lengths include the end token.

    Where pieces are sampled, tokens and padding are those of the first epoch.

    Attributes:
        kept: Sentence pairs in the batches.
        empty: Pairs left out because a side has no tokens.
        too_long: Pairs left out because a side is longer than the largest bucket.
        source_tokens: Tokens of the kept source sentences.
        target_tokens: Tokens of the kept target sentences: the labels that count in the loss.
        batches: Batches an epoch.
        padding: Share of the label positions of an epoch that is padding.
        buckets: For each bucket its length, its batch size and its number of sentence pairs.
    """

    kept: int
    empty: int
    too_long: int
    source_tokens: int
    target_tokens: int
    batches: int
    padding: float
    buckets: tuple[tuple[int, int, int], ...]

    @property
    def dropped(self) -> int:
        """Pairs left out, for whatever reason."""
        return self.empty + self.too_long

    def __str__(self) -> str:
        lengths = ", ".join(str(length) for length, _, pairs in self.buckets if pairs)
        noun = "batch" if self.batches == 1 else "batches"
        return (
            f"{self.kept:,} pairs kept, {self.empty:,} empty, {self.too_long:,} too long; "
            f"{self.target_tokens:,} target tokens in {self.batches:,} {noun} of length {lengths}: "
            f"{self.padding:.1%} padding"
        )
