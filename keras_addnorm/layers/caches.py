"""The two orders of keys and values, and caches in the order of loops that decode."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import keras
from keras import ops

from keras_addnorm.layers.masks import softmax
from keras_addnorm.layers.shapes import first_size, lengthened, size_of

Tensor = Any


class KeysValues(NamedTuple):
    """What attention reads, in some order of axes.

    Args:
        keys: Of B rows, G groups and S positions.
        values: Likewise.
        slots: The positions of the keys, int32 `(S,)`, where they are not worked out of the shape:
            several caches may share them. `()` if they are.
        joined: The weights that queries, keys and values are projected by at once; see
            `MultiHeadSelfAttention.joined_weights`. `()` if each is projected by its own.
    """

    keys: Tensor
    values: Tensor
    slots: Tensor | tuple[()] = ()
    joined: tuple[Tensor, ...] = ()

    def batch_size(self, num_groups: int) -> int | Tensor:
        """Return B.

        Args:
            num_groups: G.

        Returns:
            B.
        """
        return ops.shape(self.keys)[0]

    def by_memory(self, queries: Tensor, num_groups: int) -> Tensor:
        """Return the queries of several rows that read one memory as those of one row.

        Args:
            queries: `(n B, T, H, K)`, the rows of one memory side by side.
            num_groups: G.

        Returns:
            `(B, n T, H, K)`.
        """
        return ops.reshape(queries, (self.batch_size(num_groups), -1, *queries.shape[2:]))

    @staticmethod
    def softmax(logits: Tensor) -> Tensor:
        """Return the softmax over all keys.

        Args:
            logits: `(B, H, T, S)`.

        Returns:
            Weights that sum to one in each row.
        """
        return softmax(logits)


class PositionsFirst(KeysValues):
    """Keys and values as they are projected.

    Args:
        keys: `(B, S, G, K)`.
        values: Of the same shape.
    """

    def products(self, queries: Tensor, num_groups: int) -> Tensor:
        """Return the product of each query with each key; H/G queries share one, not copied.

        Args:
            queries: `(B, T, H, K)`.
            num_groups: G.

        Returns:
            `(B, H, T, S)`.
        """
        num_heads = queries.shape[2]
        if num_heads == num_groups:
            return ops.einsum("btgk,bsgk->bgts", queries, self.keys)
        batch, length, _, width = ops.shape(queries)
        queries = ops.reshape(queries, (batch, length, num_groups, num_heads // num_groups, width))
        products = ops.einsum("btgrk,bsgk->bgrts", queries, self.keys)
        return ops.reshape(products, (batch, num_heads, length, ops.shape(self.keys)[1]))

    def weighted_sums(self, weights: Tensor, num_groups: int) -> Tensor:
        """Return the sum of the values for each query.

        Args:
            weights: `(B, H, T, S)`.
            num_groups: G.

        Returns:
            `(B, T, H, K)`.
        """
        num_heads = weights.shape[1]
        if num_heads == num_groups:
            return ops.einsum("bgts,bsgk->btgk", weights, self.values)
        batch, _, length, num_keys = ops.shape(weights)
        shape = (batch, num_groups, num_heads // num_groups, length, num_keys)
        sums = ops.einsum("bgrts,bsgk->btgrk", ops.reshape(weights, shape), self.values)
        return ops.reshape(sums, (batch, length, num_heads, self.values.shape[-1]))

    def positions_first(self, num_groups: int) -> PositionsFirst:
        """Return this.

        Args:
            num_groups: G.

        Returns:
            This.
        """
        return self


class HeadsFirst(KeysValues):
    """Keys and values as products read them: nothing to transpose at each step of a loop.

    As a cache, attention takes it in the place of a tensor `(B, 2, S, G, K)` and gives the like
    back. Of the cross-attention it is the memory's projection, from `heads_first`. Of the
    self-attention it is that of the n hypotheses of a beam, side by side: the T queries of a call
    are not T positions, but n hypotheses at one. Hypothesis j writes position s at `s n + j`, and
    reads what its ancestors wrote, wherever that is: an attention mask from `is_ancestor` says so,
    and nothing is copied when hypotheses are reordered. With n = 1 no mask is needed.

    Batch and heads are one axis, as they are in a product of matrices: between two of another shape
    XLA puts a copy.

    Args:
        keys: `(B G, K, S)`; in self-attention `(B G, K, S n)`.
        values: `(B G, S, K)`; in self-attention `(B G, S n, K)`.
    """

    def products(self, queries: Tensor, num_groups: int) -> Tensor:
        """See `PositionsFirst`.

        Args:
            queries: `(B, T, H, K)`.
            num_groups: G.

        Returns:
            `(B, H, T, S)`.
        """
        num_heads, width = queries.shape[2:]
        length, num_keys = size_of(queries, 1), size_of(self.keys, 2)
        # (B, T, H, K) -> (B G, H/G T, K)
        shape = (first_size(self.keys, length), num_heads // num_groups * length, width)
        rows = ops.reshape(self.transposed(queries, (0, 2, 1, 3)), shape)
        batch = first_size(queries, length, num_keys)
        return ops.reshape(self.product(rows, self.keys), (batch, num_heads, length, num_keys))

    def weighted_sums(self, weights: Tensor, num_groups: int) -> Tensor:
        """See `PositionsFirst`.

        Args:
            weights: `(B, H, T, S)`.
            num_groups: G.

        Returns:
            `(B, T, H, K)`.
        """
        num_heads, width = weights.shape[1], self.values.shape[2]
        length, num_keys = size_of(weights, 2), size_of(weights, 3)
        num_rows = first_size(self.values, length, num_keys)
        rows = ops.reshape(weights, (num_rows, num_heads // num_groups * length, num_keys))
        shape = (first_size(weights, length), num_heads, length, width)
        sums = ops.reshape(self.product(rows, self.values), shape)
        return self.transposed(sums, (0, 2, 1, 3))

    @staticmethod
    def product(x: Tensor, y: Tensor) -> Tensor:
        """Return products of matrices.

        Args:
            x: `(N, T, K)`.
            y: `(N, K, S)`.

        Returns:
            `(N, T, S)`.
        """
        return ops.matmul(x, y)

    @staticmethod
    def transposed(x: Tensor, axes: tuple[int, ...]) -> Tensor:
        """Return `x` with its axes in another order.

        Args:
            x: A tensor.
            axes: The order.

        Returns:
            The same numbers.
        """
        return ops.transpose(x, axes)

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, dtype: Any) -> Self:
        """Return keys and values in this order.

        Args:
            keys: `(B, S, G, K)`.
            values: Of the same shape.
            dtype: Of the cache.

        Returns:
            The same.
        """
        keys = cls.transposed(ops.cast(keys, dtype), (0, 2, 3, 1))
        values = cls.transposed(ops.cast(values, dtype), (0, 2, 1, 3))
        return cls(_flat(keys), _flat(values))

    def written(self, keys: Tensor, values: Tensor, index: int | Tensor) -> HeadsFirst:
        """Return this with one position more of each hypothesis.

        Args:
            keys: `(B, n, G, K)`.
            values: Of the same shape.
            index: The position.

        Returns:
            The cache.
        """
        new, last = self.of(keys, values, self.keys.dtype), len(self.keys.shape) - 1
        return type(self)(
            self.with_piece(self.keys, new.keys, last, index),
            self.with_piece(self.values, new.values, last - 1, index),
        )

    @staticmethod
    def with_piece(cache: Tensor, piece: Tensor, axis: int, index: int | Tensor) -> Tensor:
        """Return keys or values with new entries of each hypothesis.

        Args:
            cache: `S n` long along one axis.
            piece: Of the same shape, but n long along that axis.
            axis: That axis.
            index: The position.

        Returns:
            A tensor of the shape of `cache`.
        """
        start = [index * piece.shape[axis] if i == axis else 0 for i in range(len(cache.shape))]
        return ops.slice_update(cache, start, piece)

    def positions(self, count: int) -> Tensor:
        """Return the position of each slot.

        Args:
            count: Number of hypotheses that share the cache, n.

        Returns:
            Int32 `(S n,)`.
        """
        if ops.is_tensor(self.slots):
            return self.slots
        return ops.arange(size_of(self.keys, -1), dtype="int32") // count

    def with_room(self, slots: int | Tensor) -> Self:
        """Return this with more slots.

        Args:
            slots: Their number, `S n`.

        Returns:
            The cache.
        """
        last = len(self.keys.shape) - 1
        keys, values = lengthened(self.keys, last, slots), lengthened(self.values, last - 1, slots)
        return type(self)(keys, values)

    def batch_size(self, num_groups: int) -> int | Tensor:
        """See `KeysValues`.

        Args:
            num_groups: G.

        Returns:
            B.
        """
        return ops.shape(self.keys)[0] // num_groups

    def positions_first(self, num_groups: int) -> PositionsFirst:
        """Return the same, transposed.

        Args:
            num_groups: G.

        Returns:
            The same.
        """
        width, num_keys = ops.shape(self.keys)[-2:]
        keys = ops.reshape(self.keys, (-1, num_groups, width, num_keys))
        values = ops.reshape(self.values, (-1, num_groups, num_keys, width))
        return PositionsFirst(
            ops.transpose(keys, (0, 3, 1, 2)), ops.transpose(values, (0, 2, 1, 3))
        )


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


def heads_first(caches: Any, kind: type[HeadsFirst] = HeadsFirst) -> Any:
    """Return caches with `HeadsFirst` in the place of each tensor `(B, 2, S, G, K)`.

    Args:
        caches: From `initial_cache`. Those of pruned sublayers, which have no heads, stay.
        kind: How they are written.

    Returns:
        The same structure.
    """

    def as_read(cache: Tensor) -> Tensor | HeadsFirst:
        if len(cache.shape) != 5:
            return cache
        return kind.of(cache[:, 0], cache[:, 1], cache.dtype)

    return keras.tree.map_structure(as_read, caches)


def _flat(x: Tensor) -> Tensor:
    return ops.reshape(x, (-1, size_of(x, 2), size_of(x, 3)))


def is_ancestor(ancestors: Tensor) -> Tensor:
    """Return the attention mask of hypotheses that share a cache.

    Args:
        ancestors: `(B, n, S)`, int32: which hypothesis, 0 to n - 1, wrote the position.

    Returns:
        Booleans `(B, n, S n)`.
    """
    count, length = ancestors.shape[1], size_of(ancestors, 2)
    is_writer = ops.equal(ops.expand_dims(ancestors, -1), ops.arange(count, dtype="int32"))
    return ops.reshape(is_writer, (first_size(ancestors, length), count, length * count))


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
