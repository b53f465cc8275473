"""Combines the alignments of two directions into one."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_addnorm.alignment.pharaoh import checked_links

Link = tuple[int, int]
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def grow_diag_final_and(forward: Any, backward: Any) -> np.ndarray:
    """Combines two alignments: what both have, what touches it, and then tokens without a link.

    It begins with the links of both. It adds links of one that touch one that is there, also at a
    corner, and bring in a token without a link, while there are any. Then it adds those of the
    first, and of the second, both of whose tokens have no link.

    Args:
        forward: Links `(source, target)`, positions from 0.
        backward: Those of the other direction, also `(source, target)`.

    Returns:
        The links, `(L, 2)` int32, in order.

    Raises:
        ValueError: If they are no links.

    Example:
        >>> grow_diag_final_and([(0, 0), (1, 1)], [(0, 0), (1, 2)]).tolist()
        [[0, 0], [1, 1], [1, 2]]

    Reference:
        Koehn et al., "Statistical Phrase-Based Translation", 2003; "Edinburgh System Description
        for the 2005 IWSLT Speech Translation Evaluation", 2005.
    """
    first, second = (
        {(int(s), int(t)) for s, t in links} for links in checked_links([forward, backward])
    )
    found, either = first & second, first | second
    sources, targets = {s for s, _ in found}, {t for _, t in found}

    def add(link: Link) -> None:
        found.add(link)
        sources.add(link[0])
        targets.add(link[1])

    waiting = sorted(found)
    for s, t in waiting:  # It grows meanwhile.
        for down, right in _NEIGHBOURS:
            link = (s + down, t + right)
            is_new = link[0] not in sources or link[1] not in targets
            if is_new and link in either and link not in found:
                add(link)
                waiting.append(link)
    for links in (first, second):
        for s, t in sorted(links):
            if s not in sources and t not in targets:
                add((s, t))
    return np.array(sorted(found), np.int32).reshape(-1, 2)
