"""The cache of a search, and its reordering with the hypotheses."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras

from keras_addnorm.decoding.indexing import take

Tensor = Any


class Cache(NamedTuple):
    """The cache of a search: two nested structures of tensors.

    The first axis of each tensor counts sentences, or equal blocks of entries of each sentence.

    Args:
        rows: The state of hypotheses: the first axis of a tensor counts rows, which are reordered
            with the hypotheses. An object with a method `reorder_rows` (the shared caches of an
            engine) reorders itself.
        fixed: The data of sentences, the same at each step.
    """

    rows: Any
    fixed: Any = ()


def reorder_rows(cache: Cache, rows: Tensor) -> Cache:
    """Return the cache of the hypotheses that are continued.

    Args:
        cache: A cache of N rows.
        rows: `(N,)` int32: the row that each hypothesis continues.

    Returns:
        The cache.
    """

    def reordered(node: Any) -> Any:
        if hasattr(node, "reorder_rows"):
            return node.reorder_rows(rows)
        return take(node, rows) if keras.ops.is_tensor(node) else None

    return cache._replace(rows=keras.tree.traverse(reordered, cache.rows))


def grow_cache(cache: Cache, length: int | Tensor, rows_per_beam: int) -> Cache:
    """Return a cache grown to more positions.

    Args:
        cache: The cache. Only objects among its rows that have a method `grow` grow; other rows
            have their full length from the start.
        length: The number of positions.
        rows_per_beam: Number of hypotheses that share one of these objects' caches, n.

    Returns:
        The cache.
    """

    def grown(node: Any) -> Any:
        if hasattr(node, "grow"):
            return node.grow(length, rows_per_beam)
        return node if keras.ops.is_tensor(node) else None

    return cache._replace(rows=keras.tree.traverse(grown, cache.rows))
