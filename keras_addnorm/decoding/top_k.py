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
        return _best_of_blocks(scores, count, line or width)
    scores, order = ops.top_k(scores, k=count)
    return scores, ops.cast(order, "int32")


def _block_size(line: int) -> int:
    """Return the size of the blocks whose largest numbers are compared first.

    It divides the line if possible: without XLA, leaving out its rest copies all numbers.
    """
    divisors = (size for size in range(_BLOCK, _BLOCK // 2 - 1, -1) if line % size == 0)
    return next(divisors, _BLOCK)


def _best_of_blocks(scores: Tensor, count: int, line: int) -> tuple[Tensor, Tensor]:
    """Return the same from the `count` blocks with the largest maxima, which is faster."""
    size = _block_size(line)
    blocks_per_line = -(-line // size)
    _, blocks = ops.top_k(_block_maxima(scores, line, size), k=count)
    # In their original order, so that of equal numbers the first one still comes first.
    blocks = ops.sort(ops.cast(blocks, "int32"), axis=-1)
    # (N, C) -> (N, C, size) -> (N, C size): their numbers, by their places in the line and the row
    in_line = ops.expand_dims(blocks % blocks_per_line * size, -1)
    in_line = in_line + ops.arange(size, dtype="int32")
    places = ops.expand_dims(blocks // blocks_per_line * line, -1) + in_line
    in_line, places = (ops.reshape(x, (-1, count * size)) for x in (in_line, places))
    few = select(scores, ops.minimum(places, ops.cast(scores.shape[-1] - 1, "int32")))
    # Minus infinity behind the end of a line comes after that of the row's first block.
    few = ops.where(in_line < line, few, -float("inf"))
    few, order = ops.top_k(few, k=count)
    return few, select(places, ops.cast(order, "int32"))


def _block_maxima(scores: Tensor, line: int, size: int) -> Tensor:
    """Return the largest number of each block; the last block of a line has what is left of it.

    Padding the lines instead would copy all numbers, which takes XLA longer than to compare them.
    """
    lines = ops.reshape(scores, (-1, scores.shape[-1] // line, line))
    rest = line % size
    whole = ops.reshape(lines[..., : line - rest], (-1, lines.shape[1], line // size, size))
    maxima = ops.max(whole, axis=-1)
    if rest:
        last = ops.max(lines[..., line - rest :], axis=-1, keepdims=True)
        maxima = ops.concatenate([maxima, last], axis=-1)
    return ops.reshape(maxima, (-1, lines.shape[1] * maxima.shape[-1]))
