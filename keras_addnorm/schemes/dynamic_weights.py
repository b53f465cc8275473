"""Weights of reading, mixing and writing, which may depend on the streams.

Hyper-connections and frac-connections share them; they differ in what they read.
"""

from __future__ import annotations

from collections.abc import Sequence

from keras import ops

from keras_addnorm.schemes.mixing import precise, seen
from keras_addnorm.schemes.plan import LearnedArray, ResidualParts, Tensor


def projections(width: int | str, reads: int, streams: int) -> list[LearnedArray]:
    """Return the arrays that make weights depend on the streams; at the start they do not.

    Args:
        width: The width of a stream.
        reads: How many weights of reading each stream has.
        streams: The number of streams.

    Returns:
        The arrays.
    """
    return [
        LearnedArray("read_projection", (width, reads), 0.0),
        LearnedArray("mixing_projection", (width, streams), 0.0),
        LearnedArray("write_projection", (width, 1), 0.0),
        LearnedArray("read_and_mixing_scale", (), 0.01),
        LearnedArray("write_scale", (), 0.01),
    ]


def vector(
    name: str, scale: str, streams: Sequence[Tensor], parts: ResidualParts, dynamic: bool
) -> Tensor:
    """Return one weight a stream, `(n,)` or `(..., n)`.

    Args:
        name: `"read"` or `"write"`.
        scale: The name of the factor on what depends on the streams.
        streams: The streams.
        parts: The arrays.
        dynamic: Whether the weights depend on the streams.

    Returns:
        The weights, float32.
    """
    static = precise(getattr(parts, f"{name}_weights"))
    if not dynamic:
        return static
    views = [seen(x, getattr(parts, f"{name}_projection")) for x in streams]
    return static + precise(getattr(parts, scale)) * ops.concatenate(views, axis=-1)


def rows(name: str, streams: Sequence[Tensor], parts: ResidualParts, dynamic: bool) -> Tensor:
    """Return the transpose of a matrix of weights: a row for each stream that is made."""
    static = ops.transpose(precise(getattr(parts, f"{name}_weights")))
    if not dynamic:
        return static
    views = [seen(x, getattr(parts, f"{name}_projection")) for x in streams]
    return static + precise(parts.read_and_mixing_scale) * ops.stack(views, axis=-1)
