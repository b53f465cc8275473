"""The special token ids of a search."""

from __future__ import annotations

import dataclasses

from keras_addnorm.basics.argument_checks import is_whole


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """The special token ids of a search.

    The start may be the same id as padding (Marian, T5, Pegasus) or as the end (BART, M2M-100).

    Args:
        pad_id: Fills rows after their end; never generated.
        start_id: Read at the first step; never generated unless it is the end, too.
        end_id: Ends a sequence.

    Raises:
        ValueError: If padding is the end, or an id is no int, or negative.
    """

    pad_id: int = 0
    start_id: int = 1
    end_id: int = 2

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not is_whole(value, 0):
                raise ValueError(
                    f"A special token is named by its id. Expected an int {name} >= 0. "
                    f"Received: {value!r}"
                )
        if self.pad_id == self.end_id:
            raise ValueError(
                "Padding, which is never generated, cannot be what ends a sequence. Expected a "
                f"pad_id other than end_id. Received: {self.pad_id} for both. Name an id as "
                "padding that the model never reads."
            )

    @property
    def never_generated(self) -> tuple[int, ...]:
        """The ids that no output holds, rising: padding, and the start unless it is the end."""
        return tuple(sorted({self.pad_id, self.start_id} - {self.end_id}))
