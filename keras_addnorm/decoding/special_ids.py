"""The ids that a search has to know."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """The ids that a search has to know.

    Args:
        pad_id: Fills rows after their end; never generated.
        start_id: Read at the first step; never generated.
        end_id: Ends a sequence.
    """

    pad_id: int = 0
    start_id: int = 1
    end_id: int = 2
