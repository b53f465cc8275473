"""The options of a training data set as one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keras_addnorm.basics.argument_checks import is_whole, require_bool, require_int
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data.buckets import Bucketing
from keras_addnorm.data.subword_sampling import SubwordSampling

# Inputs and labels; with row weights, a weight for each row as the third part.
Batch = tuple[Any, ...]


@dataclass(frozen=True)
class Batching(Bucketing):
    """How sentence pairs become batches: their shapes, their order and their parts.

    The fields are the keyword arguments of `make_training_dataset`, which documents them.

    Raises:
        ValueError: If a number does not fit, or pieces are to be sampled without a seed.
    """

    shuffle_seed: int | None = None
    first_epoch: int = 0
    batches_per_update: int = 1
    steps_per_epoch: int | None = None
    repeats: int = 1
    row_weights: bool = False
    row_share: tuple[int, int] = (0, 1)
    sampling: SubwordSampling | None = None
    alignments: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_numbers()
        if self.sampling is not None and self.shuffle_seed is None:
            raise ArgumentError(
                "Sampled pieces follow from a seed.",
                f"a `shuffle_seed` with {self.sampling}",
                "Pass one, or leave sampling out: validation goes without.",
                received="shuffle_seed=None",
            )

        if self.sampling is not None and self.alignments is not None:
            raise ArgumentError(
                "Alignments belong to the pieces that a text is always split into.",
                "`alignments`, or `sampling`, which splits it anew in each epoch",
                received="both",
            )

    def _check_numbers(self) -> None:
        require_int("Epochs are counted from 0.", least=0, first_epoch=self.first_epoch)
        if self.shuffle_seed is not None:
            require_int("A seed orders the batches.", least=0, shuffle_seed=self.shuffle_seed)
        require_int("An update has batches.", batches_per_update=self.batches_per_update)
        if self.steps_per_epoch is not None:
            require_int("An epoch has batches.", steps_per_epoch=self.steps_per_epoch)
            if self.steps_per_epoch % self.batches_per_update:
                raise ArgumentError(
                    "An epoch has whole updates.",
                    "`steps_per_epoch` as a multiple of `batches_per_update` = "
                    f"{self.batches_per_update}",
                    steps_per_epoch=self.steps_per_epoch,
                )
        require_int("A row stands in a batch.", repeats=self.repeats)
        require_bool(row_weights=self.row_weights)
        share = self.row_share
        is_pair = isinstance(share, tuple | list) and len(share) == 2
        if not is_pair or not all(is_whole(number, 0) for number in share):
            raise ArgumentError(
                "A process reads a share of the rows.",
                "`row_share=(index, count)`, two ints",
                value=share,
            )
        if not isinstance(self.sampling, SubwordSampling | None):
            raise ArgumentError(
                expected="a SubwordSampling, or None to split texts the same way each time",
                value=self.sampling,
            )

    @property
    def has_row_weights(self) -> bool:
        """Whether a batch has a weight for each row."""
        return self.row_weights or self.batches_per_update > 1

    def seed_of(self, epoch: int) -> tuple[int, int] | None:
        """The seed of an epoch's order and pieces; `None` for the fixed order."""
        return None if self.shuffle_seed is None else (self.shuffle_seed, epoch)

    def own_rows(self, batch: Batch) -> Batch:
        """The rows of a batch that this process reads."""
        inputs, *others = batch
        index, count = self.row_share
        size = len(others[0]) // count
        rows = slice(index * size, (index + 1) * size)
        return {name: ids[rows] for name, ids in inputs.items()}, *(part[rows] for part in others)
