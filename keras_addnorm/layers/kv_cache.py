"""Key/value caches: the protocol that attention reads through, and its plain layout."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers.shapes import size_of

Tensor = Any


def require_cache_and_index(cache: Any, index: int | Tensor | None) -> None:
    """Raise a `ValueError` if there is a cache, or an index, alone."""
    if (cache is None) != (index is None):
        raise ArgumentError(
            "A cache needs the index that it is written at.",
            "both of `cache` and `cache_update_index`, or neither",
            received=f"only {'cache_update_index' if cache is None else 'cache'}",
        )


def require_place(index: int | Tensor, count: int | None, size: int | None) -> None:
    """Raise a `ValueError` if a number is no place for so many positions of a cache or a mask.

    What lies outside would be written, or read, at another place, or nowhere. A tensor is not
    looked at: a search has made it.
    """
    last = None if count is None or size is None else size - count
    if isinstance(index, int | np.integer) and not is_whole(index, 0, last):
        raise ArgumentError(
            "A cache has no such place." if size is None else f"There are {size} positions.",
            "`cache_update_index` >= 0" if last is None else f"0 <= `cache_update_index` <= {last}",
            cache_update_index=index,
        )


class KeyValueCache(Protocol):
    """What attention asks of keys and values, whatever their layout.

    `KeyValues` is the plain layout. A decoding loop may pass another implementation as `cache` of
    an attention layer, and receives it back as the updated cache.
    """

    @property
    def cache(self) -> Any:
        """The updated cache that a layer returns."""

    def query_positions(self, num_queries: int | Tensor, index: int | Tensor | None) -> Tensor:
        """Return the positions of T queries, int32 `(T,)`, from `index` on if there is a cache."""

    def extend(self, keys: Tensor, values: Tensor, index: int | Tensor | None) -> Self:
        """Return this with new keys and values, `(B, T, G, K)` each, from position `index` on."""

    def key_positions(self) -> Tensor:
        """Return the position of each key, int32 `(S,)`."""

    def group_rows(self, queries: Tensor) -> Tensor:
        """Make the n rows of a cached sequence one: `(n B, T, H, K)` -> `(B, n T, H, K)`."""

    def scores(self, queries: Tensor) -> Tensor:
        """Return `q k^T`: `(B, T, H, K)` -> `(B, H, T, S)`; H/G query heads share a key head."""

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of the values: `(B, H, T, S)` -> `(B, T, H, K)`."""

    def keys_and_values(self) -> tuple[Tensor, Tensor]:
        """Return keys and values, `(B, S, G, K)` each."""


class KeyValues:
    """Keys and values in the layout in which they are projected, `(B, S, G, K)`.

    Args:
        keys: `(B, S, G, K)`; `None` before the first `extend`.
        values: `(B, S, G, K)`; `None` before the first `extend`.
        cache: The preallocated cache that keys and values are written to, `(B, 2, S, G, K)`: keys,
            then values. `None` for keys and values that are read once.
    """

    def __init__(
        self,
        keys: Tensor | None = None,
        values: Tensor | None = None,
        cache: Tensor | None = None,
    ) -> None:
        self.keys: Any = keys
        self.values: Any = values
        self.cache = cache

    @classmethod
    def of_cache(cls, cache: Tensor) -> KeyValues:
        """Return the keys and values of a cache `(B, 2, S, G, K)`."""
        if len(cache.shape) != 5:
            raise ArgumentError(
                "This is no cache of keys and values.",
                "one of `empty_cache`, (batch, 2, positions, heads, width)",
                received=f"shape: {tuple(cache.shape)}",
            )
        return cls(cache[:, 0], cache[:, 1], cache)

    def query_positions(self, num_queries: int | Tensor, index: int | Tensor | None) -> Tensor:
        """Return `index`, `index + 1`, and so on."""
        at = ops.arange(num_queries, dtype="int32")
        return at if index is None else at + index

    def extend(self, keys: Tensor, values: Tensor, index: int | Tensor | None) -> KeyValues:
        """Return the new keys and values alone, or the cache with the new ones written into it."""
        if self.cache is None:
            return KeyValues(keys, values)
        require_place(index, keys.shape[1], self.cache.shape[2])
        return KeyValues.of_cache(_write(self.cache, keys, values, index))

    def key_positions(self) -> Tensor:
        """Return 0, 1, and so on."""
        keys = self.keys if self.cache is None else self.cache[:, 0]
        return ops.arange(size_of(keys, 1), dtype="int32")

    def group_rows(self, queries: Tensor) -> Tensor:
        """Return the queries of the rows of one cached sequence as those of one row."""
        if self.cache is None:
            return queries
        return ops.reshape(queries, (ops.shape(self.keys)[0], -1, *queries.shape[2:]))

    def scores(self, queries: Tensor) -> Tensor:
        """Return the product of each query with each key."""
        num_heads, num_groups = queries.shape[2], self.keys.shape[2]
        if num_heads == num_groups:
            return ops.einsum("btgk,bsgk->bgts", queries, self.keys)
        batch, length, _, width = ops.shape(queries)
        queries = ops.reshape(queries, (batch, length, num_groups, num_heads // num_groups, width))
        products = ops.einsum("btgrk,bsgk->bgrts", queries, self.keys)
        return ops.reshape(products, (batch, num_heads, length, ops.shape(self.keys)[1]))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum of the values for each query."""
        num_heads, num_groups = weights.shape[1], self.values.shape[2]
        if num_heads == num_groups:
            return ops.einsum("bgts,bsgk->btgk", weights, self.values)
        batch, _, length, num_keys = ops.shape(weights)
        shape = (batch, num_groups, num_heads // num_groups, length, num_keys)
        sums = ops.einsum("bgrts,bsgk->btgrk", ops.reshape(weights, shape), self.values)
        return ops.reshape(sums, (batch, length, num_heads, self.values.shape[-1]))

    def keys_and_values(self) -> tuple[Tensor, Tensor]:
        """Return keys and values, `(B, S, G, K)` each."""
        return self.keys, self.values


def as_key_values(cache: Tensor | KeyValueCache | None) -> KeyValueCache:
    """Return the `KeyValueCache` of a cache tensor `(B, 2, S, G, K)`, of itself, or of no cache."""
    if cache is None:
        return KeyValues()
    return cache if hasattr(cache, "extend") else KeyValues.of_cache(cache)


def _write(cache: Tensor, keys: Tensor, values: Tensor, index: int | Tensor | None) -> Tensor:
    """Return the cache `(B, 2, S, G, K)` with T new positions from `index` on."""
    update = ops.cast(ops.stack([keys, values], axis=1), cache.dtype)
    # Not `ops.slice_update`: with TensorFlow that is an operation of XLA, which stock TensorFlow
    # Serving refuses to run.
    num_new = ops.shape(update)[2]
    offset = ops.arange(cache.shape[2], dtype="int32") - index
    is_new = ops.logical_and(offset >= 0, offset < num_new)
    if update.shape[2] != 1:
        update = ops.take(update, ops.clip(offset, 0, num_new - 1), axis=2)
    return ops.where(ops.reshape(is_new, (-1, 1, 1)), update, cache)
