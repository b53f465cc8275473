"""How many entries a table of characters of SentencePiece has, before they are listed.

A table is a trie in a double array of units of four bytes: a unit has the byte that leads to it,
and where the next ones are. Endings that several entries share stand there once, so that a table
of a few thousand bytes may have any number of entries, or entries without an end.

Reference:
    Yata, Darts-clone, https://github.com/s-yata/darts-clone
"""

from __future__ import annotations

import numpy as np

from keras_addnorm.basics.errors import ArgumentError

_MOST_PLACES = 1 << 22  # NFKC has 600,000
_BYTES = np.arange(256)


def require_few_entries(table: bytes) -> None:
    """Refuse a table whose entries have more characters than any has.

    Args:
        table: The `precompiled_charsmap` of a model.

    Raises:
        ValueError: If they have.
    """
    count = min(int.from_bytes(table[:4], "little"), len(table) - 4) // 4
    units = np.frombuffer(table, "<u4", max(count, 0), 4).astype(np.int64)
    bases = np.arange(len(units)) ^ ((units >> 10) << ((units & 0x200) >> 6))
    labels = units & 0x800000FF

    def next_ones(place: int) -> list[int]:
        """Finds the units that a further byte leads to."""
        found = bases[place] ^ _BYTES
        found = found[found < len(units)]
        found = found[labels[found] == (bases[place] ^ found)]
        return [int(one) for one in found]

    # The places below each one, on all ways; 0 while they are counted.
    below: dict[int, int] = {}
    waiting = [0] if len(units) else []
    while waiting:
        place = waiting[-1]
        if place not in below:
            below[place] = 0
            following = next_ones(place)
            waiting += [one for one in following if one not in below]
            has_end = all(below.get(one) != 0 for one in following)
        else:
            waiting.pop()
            if below[place]:
                continue
            following = next_ones(place)
            has_end = all(below[one] for one in following)
            below[place] = 1 + sum(below[one] for one in following)
        if not has_end or below[place] > _MOST_PLACES:
            raise ArgumentError(
                "The table of characters of the vocabulary cannot be listed.",
                f"entries with at most {_MOST_PLACES:,} bytes, and each with an end",
                "Train the SentencePiece model with one of its own tables, such as nmt_nfkc.",
                received="more",
            )
