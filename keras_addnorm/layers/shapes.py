"""Sizes of tensors whose shape is not wholly known while they are traced."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any


def leading_sizes(x: Tensor, count: int) -> tuple[int | Tensor, ...]:
    """Return the first sizes of `x`, for a reshape to a shape that begins with them.

    Args:
        x: A tensor.
        count: How many sizes.

    Returns:
        Those that are known as numbers. -1 for an unknown one, which a reshape finds out by
        itself; if there are several, as tensors.
    """
    sizes = tuple(x.shape)[:count]
    if sizes.count(None) > 1:
        return tuple(ops.shape(x))[:count]
    return tuple(-1 if size is None else size for size in sizes)
