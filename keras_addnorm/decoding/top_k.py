"""The largest numbers of each row, with ties in a defined order on every backend."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_addnorm.decoding.indexing import select

Tensor = Any

_BLOCK = 64
"""Largest size of the blocks by whose maxima `best_first` preselects, in long rows."""


def best_first(scores: Tensor, count: int, line: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the `count` largest numbers of each row, and their places, int32.

    Of equal numbers, the first one comes first.

    Args:
        scores: `(N, M)`.
        count: Number of results for each row.
        line: Length of the equal parts that a row consists of, such as V in a row of K
            hypotheses; `None` for M.

    Returns:
        Numbers and places, `(N, count)` each.
    """
    if keras.backend.backend() == "torch":
        # `torch.topk` breaks ties as it likes; a stable sort does not.
        order = ops.argsort(-scores, axis=-1)[:, :count]
        return select(scores, order), order
    width = scores.shape[-1]
    if width > 16 * count * _BLOCK:
        return _best_of_blocks(scores, count, _block_size(line or width))
    scores, order = ops.top_k(scores, k=count)
    return scores, ops.cast(order, "int32")


def _block_size(width: int) -> int:
    """Return the size of the blocks whose largest numbers are compared first.

    It divides the width if possible: XLA would divide at each number otherwise.
    """
    divisors = (size for size in range(_BLOCK, _BLOCK // 2 - 1, -1) if width % size == 0)
    return next(divisors, _BLOCK)


def _best_of_blocks(scores: Tensor, count: int, size: int) -> tuple[Tensor, Tensor]:
    """Return the same from the `count` blocks with the largest maxima, which is faster."""
    width = scores.shape[-1]
    scores = ops.pad(scores, ((0, 0), (0, -width % size)), constant_values=-float("inf"))
    blocks = ops.reshape(scores, (-1, -(-width // size), size))
    _, chosen = ops.top_k(ops.max(blocks, axis=-1), k=count)
    # In their original order, so that of equal numbers the first one still comes first.
    chosen = ops.sort(ops.cast(chosen, "int32"), axis=-1)
    few = select(blocks, chosen)
    scores, order = ops.top_k(ops.reshape(few, (-1, count * size)), k=count)
    order = ops.cast(order, "int32")
    return scores, select(chosen, order // size) * size + order % size
