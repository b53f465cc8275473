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


def first_size(x: Tensor, *others: int | Tensor) -> int | Tensor:
    """Return the first size of `x`, for a reshape to a shape that begins with it.

    Args:
        x: A tensor.
        *others: The other sizes of the new shape.

    Returns:
        A number if it is known; -1 if it is the only one that is not; else a tensor, since of
        arrays without numbers a reshape finds out nothing.
    """
    is_alone = all(isinstance(size, int) for size in others)
    return -1 if x.shape[0] is None and is_alone else size_of(x, 0)


def pad_axis(x: Tensor, axis: int, size: int | Tensor) -> Tensor:
    """Return `x` with zeros at the end of one axis, up to a new size."""
    sizes = [size_of(x, i) for i in range(len(x.shape))]
    sizes[axis] = size - sizes[axis]
    return ops.concatenate([x, ops.zeros(sizes, dtype=x.dtype)], axis=axis)
