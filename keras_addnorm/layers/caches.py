"""The two orders of keys and values, and caches in the order of loops that decode."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

Tensor = Any


class PositionsFirst(NamedTuple):
    """Keys and values as they are projected.

    Args:
        keys: `(B, S, G, K)`.
        values: Of the same shape.
    """

    keys: Tensor
    values: Tensor

    @property
    def axes(self) -> str:
        """The order of the axes, in the letters of attention's products."""
        return "bsgk"

    def positions_first(self) -> PositionsFirst:
        """Return this."""
        return self


class HeadsFirst(NamedTuple):
    """Keys and values as products read them: nothing to transpose at each step of a loop.

    As a cache, attention takes it in the place of a tensor `(B, 2, S, G, K)` and gives the like
    back. Of the cross-attention it is the memory's projection, from `heads_first`. Of the
    self-attention it is that of the n hypotheses of a beam, side by side: the T queries of a call
    are not T positions, but n hypotheses at one. Hypothesis j writes position s at `s n + j`, and
    reads what its ancestors wrote, wherever that is: an attention mask from `is_ancestor` says so,
    and nothing is copied when hypotheses are reordered. With n = 1 no mask is needed.

    Args:
        keys: `(B, G, S, K)`; in self-attention `(B, G, S n, K)`.
        values: Of the same shape.
    """

    keys: Tensor
    values: Tensor

    @property
    def axes(self) -> str:
        """See `PositionsFirst`."""
        return "bgsk"

    def positions_first(self) -> PositionsFirst:
        """Return the same, transposed."""
        return PositionsFirst(ops.swapaxes(self.keys, 1, 2), ops.swapaxes(self.values, 1, 2))


def read(cache: Tensor | HeadsFirst) -> PositionsFirst | HeadsFirst:
    """Return the keys and values of a cache.

    Args:
        cache: `(B, 2, S, G, K)`, or what is heads first already.

    Returns:
        Them, in their order.
    """
    if isinstance(cache, HeadsFirst):
        return cache
    return PositionsFirst(cache[:, 0], cache[:, 1])


def heads_first(caches: Any) -> Any:
    """Return caches with `HeadsFirst` in the place of each tensor `(B, 2, S, G, K)`.

    Args:
        caches: From `initial_cache`. Those of pruned sublayers, which have no heads, stay.

    Returns:
        The same structure.
    """
    return keras.tree.map_structure(
        lambda cache: _turned(cache) if len(cache.shape) == 5 else cache, caches
    )


def _turned(cache: Tensor) -> HeadsFirst:
    return HeadsFirst(ops.swapaxes(cache[:, 0], 1, 2), ops.swapaxes(cache[:, 1], 1, 2))


def is_ancestor(ancestors: Tensor) -> Tensor:
    """Return the attention mask of hypotheses that share a cache.

    Args:
        ancestors: `(B, n, S)`, int32: which hypothesis, 0 to n - 1, wrote the position.

    Returns:
        Booleans `(B, n, S n)`.
    """
    count, length = ancestors.shape[1:]
    is_writer = ops.equal(ops.expand_dims(ancestors, -1), ops.arange(count, dtype="int32"))
    return ops.reshape(is_writer, (-1, count, length * count))


def write(cache: Tensor, keys: Tensor, values: Tensor, index: int | Tensor) -> Tensor:
    """Write new positions.

    Args:
        cache: `(B, 2, S, G, K)`.
        keys: `(B, T, G, K)`.
        values: Of the same shape.
        index: Where the first of them goes.

    Returns:
        The cache with them.
    """
    update = ops.cast(ops.stack([keys, values], axis=1), cache.dtype)
    # Not `ops.slice_update`: with TensorFlow that is an operation of XLA, which stock TensorFlow
    # Serving refuses to run.
    num_new = ops.shape(update)[2]
    offset = ops.arange(cache.shape[2], dtype="int32") - index
    is_new = ops.logical_and(offset >= 0, offset < num_new)
    if update.shape[2] != 1:
        update = ops.take(update, ops.clip(offset, 0, num_new - 1), axis=2)
    return ops.where(ops.reshape(is_new, (-1, 1, 1)), update, cache)


def write_hypotheses(
    cache: HeadsFirst, keys: Tensor, values: Tensor, index: int | Tensor
) -> HeadsFirst:
    """Write one position of each hypothesis.

    Args:
        cache: `(B, G, S n, K)`, twice.
        keys: `(B, n, G, K)`.
        values: Of the same shape.
        index: The position.

    Returns:
        The cache with them.
    """
    count, slots = keys.shape[1], cache.keys.shape[2]
    is_here = ops.equal(ops.arange(slots, dtype="int32") // count, index)

    def written(tensor: Tensor, new: Tensor) -> Tensor:
        # (B, n, G, K) -> (B, G, n, K) -> (B, G, S n, K)
        new = ops.swapaxes(ops.cast(new, tensor.dtype), 1, 2)
        new = ops.tile(new, (1, 1, slots // count, 1))
        return ops.where(ops.expand_dims(is_here, -1), new, tensor)

    return HeadsFirst(written(cache.keys, keys), written(cache.values, values))
