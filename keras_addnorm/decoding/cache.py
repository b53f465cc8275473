"""What a decoder keeps from step to step, and how it follows its hypotheses."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras

from keras_addnorm.decoding.indexing import take

Tensor = Any


class Cache(NamedTuple):
    """What a search keeps for the decoder, in two nested structures of tensors.

    The first axis of all of them counts sentences, or equal blocks of entries of each sentence.

    Args:
        rows: What belongs to hypotheses: the first axis of a tensor counts rows, and when
            hypotheses are reordered, so are these. An object with a method `reorder_rows` (the
            shared caches of an engine) does that itself.
        fixed: What belongs to sentences, and is the same at each step.
    """

    rows: Any
    fixed: Any = ()


def reorder_rows(cache: Cache, rows: Tensor) -> Cache:
    """Return the cache of the hypotheses that go on.

    Args:
        cache: With N rows.
        rows: `(N,)` int32: the row that each hypothesis goes on from.

    Returns:
        The cache.
    """

    def reordered(node: Any) -> Any:
        if hasattr(node, "reorder_rows"):
            return node.reorder_rows(rows)
        return take(node, rows) if keras.ops.is_tensor(node) else None

    return cache._replace(rows=keras.tree.traverse(reordered, cache.rows))


def grow_cache(cache: Cache, length: int | Tensor, rows_per_beam: int) -> Cache:
    """Return a cache with room for more positions; what does not grow has all of it already.

    Args:
        cache: With objects among its rows that have a method `grow`: those that grow.
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
