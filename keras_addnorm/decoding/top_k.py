"""The largest numbers of each row, with ties in a defined order on every backend."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_addnorm.decoding.indexing import select

Tensor = Any

_BLOCK = 64
"""Numbers at most that `best_first` looks at as one, by their largest, where there are many."""


def best_first(scores: Tensor, count: int, line: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the `count` largest numbers of each row, and where they stood, int32.

    Of equals, the one further to the front comes first.

    Args:
        scores: `(N, M)`.
        count: How many.
        line: How many numbers were a line of their own before they came to a row, such as the V of
            one of K hypotheses; all of them unless given.

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
    """Return how many numbers of lines of some width are looked at as one.

    No block goes beyond its line if there is such a size: XLA would divide to find each number.
    """
    divisors = (size for size in range(_BLOCK, _BLOCK // 2 - 1, -1) if width % size == 0)
    return next(divisors, _BLOCK)


def _best_of_blocks(scores: Tensor, count: int, size: int) -> tuple[Tensor, Tensor]:
    """Return the same, faster, from the `count` blocks with the largest maxima: no other counts."""
    width = scores.shape[-1]
    scores = ops.pad(scores, ((0, 0), (0, -width % size)), constant_values=-float("inf"))
    blocks = ops.reshape(scores, (-1, -(-width // size), size))
    _, chosen = ops.top_k(ops.max(blocks, axis=-1), k=count)
    # As they stood, so that of equals the one further to the front still comes first.
    chosen = ops.sort(ops.cast(chosen, "int32"), axis=-1)
    few = select(blocks, chosen)
    scores, order = ops.top_k(ops.reshape(few, (-1, count * size)), k=count)
    order = ops.cast(order, "int32")
    return scores, select(chosen, order // size) * size + order % size
