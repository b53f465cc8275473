"""Shapes and return values of layers.

A shape may be only partly known while it is traced. A layer returns its output, then attention
weights, cache and values where these are asked for.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers.adapted import LayerOfLayers

Tensor = Any


def require_sequences(name: str, **inputs: Tensor) -> None:
    """Raise a `ValueError` unless inputs of a layer, or trees of them, have three axes."""
    named = [(name, x) for name, tree in inputs.items() for x in keras.tree.flatten(tree)]
    for argument, x in named:
        if x is not None and len(x.shape) != 3:
            raise ArgumentError(
                f"The layer '{name}' works on sequences of vectors.",
                f"`{argument}` of shape (batch, positions, width)",
                f"One sequence is {argument}[None], one vector an example {argument}[:, None].",
                received=f"shape: {tuple(x.shape)}",
            )


def leading_sizes(x: Tensor, count: int) -> tuple[int | Tensor, ...]:
    """Return the first `count` sizes of `x`, for a reshape to a shape that begins with them.

    Known sizes are numbers. One unknown size is -1, which a reshape infers; several are tensors.
    """
    sizes = tuple(x.shape)[:count]
    if sizes.count(None) > 1:
        return tuple(ops.shape(x))[:count]
    return tuple(-1 if size is None else size for size in sizes)


def size_of(x: Tensor, axis: int) -> int | Tensor:
    """Return the size of an axis: a number if it is known, else a tensor."""
    size = x.shape[axis]
    return ops.shape(x)[axis] if size is None else size


def first_size(x: Tensor, *others: int | Tensor) -> int | Tensor:
    """Return the first size of `x`, for a reshape to a shape that begins with it."""
    is_alone = all(isinstance(size, int) for size in others)
    return -1 if x.shape[0] is None and is_alone else size_of(x, 0)


def pad_axis(x: Tensor, axis: int, size: int | Tensor) -> Tensor:
    """Return `x` with zeros at the end of one axis, up to a new size."""
    sizes = [size_of(x, i) for i in range(len(x.shape))]
    sizes[axis] = size - sizes[axis]
    return ops.concatenate([x, ops.zeros(sizes, dtype=x.dtype)], axis=axis)


def no_heads(x: Tensor, source_length: int | Tensor) -> Tensor:
    """Return the attention weights of a sublayer without heads, `(B, 0, T, S)`."""
    batch_size, length = tuple(ops.shape(x))[:2]
    return ops.zeros((batch_size, 0, length, source_length), dtype=x.dtype)


def pack(y: Tensor, scores: Any = None, cache: Any = None, values: Any = None) -> Any:
    """Return `y` alone, or a tuple of `y` and whatever else is not `None`, in this order."""
    outputs = tuple(item for item in (y, scores, cache, values) if item is not None)
    return y if len(outputs) == 1 else outputs


def unpack(
    outputs: Any, has_scores: bool, has_cache: bool = False, has_values: bool = False
) -> tuple[Tensor, Any, Any, Any]:
    """Return output, scores, cache and values, `None` for what was not asked for."""
    asked = (has_scores, has_cache, has_values)
    if not any(asked):
        return outputs, None, None, None
    y, *rest = outputs
    scores, cache, values = (rest.pop(0) if is_asked else None for is_asked in asked)
    return y, scores, cache, values


class ShapeOfInput(LayerOfLayers):
    """A layer whose output has the shape of its first input; `TimeDistributed` asks for it."""

    def compute_output_shape(
        self, x_shape: tuple[int | None, ...], *other_shapes: Any, **named_shapes: Any
    ) -> tuple[int | None, ...]:
        """Return the shape of `x`."""
        return tuple(x_shape)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Trace the call: caches, attention weights and states are outputs, too."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)
