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
        Those that are known as numbers; -1 for the first unknown one, which a reshape finds out by
        itself, and tensors for others.
    """
    sizes = tuple(x.shape)[:count]
    if None not in sizes:
        return sizes
    first = sizes.index(None)
    return (*sizes[:first], -1, *(size_of(x, axis) for axis in range(first + 1, count)))


def size_of(x: Tensor, axis: int) -> int | Tensor:
    """Return a size of `x`: a number if it is known, else a tensor.

    Args:
        x: A tensor.
        axis: Which of its axes.

    Returns:
        Its size.
    """
    size = x.shape[axis]
    return ops.shape(x)[axis] if size is None else size
