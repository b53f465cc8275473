"""Caches and logits as TensorFlow writes and reads them fastest without XLA."""

from __future__ import annotations

from typing import Any, Self

from keras import ops

from keras_addnorm.decoding.compilation import largest, product_of_rows, transposed, with_slice
from keras_addnorm.decoding.steps import IMPOSSIBLE, Columns
from keras_addnorm.layers.caches import HeadsFirst, KeysValues
from keras_addnorm.layers.shapes import first_size, size_of

Tensor = Any


class InPlaceColumns(Columns):
    """What is forbidden is written over, and the largest number found in one pass."""

    def without(self, x: Tensor, columns: tuple[int, ...]) -> Tensor:
        """See `Columns`.

        Args:
            x: `(N, V)`.
            columns: Which ones.

        Returns:
            The same numbers, but `IMPOSSIBLE` in these columns.
        """
        impossible = ops.full_like(x[:, :1], IMPOSSIBLE)
        for column in columns:
            x = with_slice(x, impossible, 1, column)
        return x

    def largest(self, x: Tensor) -> Tensor:
        """See `Columns`.

        Args:
            x: `(N, V)`.

        Returns:
            `(N,)` int32.
        """
        return largest(x)


class InPlaceHeadsFirst(HeadsFirst):
    """Written in place: for loops of TensorFlow without XLA, which cannot compile it.

    Read by operations that oneDNN leaves to TensorFlow: those that it takes over hand the smallest
    of products, rows and transpositions to other threads, and wait for them. Batch and heads are
    two axes: a product has the shape that attention asks for, and nobody asks for sizes.

    Args:
        keys: `(B, G, K, S)`; in self-attention `(B, G, K, S n)`.
        values: `(B, G, S, K)`; in self-attention `(B, G, S n, K)`.
    """

    product = staticmethod(product_of_rows)
    transposed = staticmethod(transposed)
    batch_size = KeysValues.batch_size

    def products(self, queries: Tensor, num_groups: int) -> Tensor:
        """See `PositionsFirst`.

        Args:
            queries: `(B, T, H, K)`.
            num_groups: G.

        Returns:
            `(B, H, T, S)`.
        """
        num_heads, length = queries.shape[2], size_of(queries, 1)
        by_head = self._heads_and_positions_turned(queries)
        if num_heads == num_groups:
            return self.product(by_head, self.keys)
        # (B, H, T, K) -> (B, G, H/G T, K)
        shape = (num_groups, num_heads // num_groups * length, queries.shape[3])
        rows = ops.reshape(by_head, (first_size(queries, length), *shape))
        found, num_keys = self.product(rows, self.keys), size_of(self.keys, 3)
        batch = first_size(queries, length, num_keys)
        return ops.reshape(found, (batch, num_heads, length, num_keys))

    def weighted_sums(self, weights: Tensor, num_groups: int) -> Tensor:
        """See `PositionsFirst`.

        Args:
            weights: `(B, H, T, S)`.
            num_groups: G.

        Returns:
            `(B, T, H, K)`.
        """
        num_heads = weights.shape[1]
        if num_heads == num_groups:
            return self._heads_and_positions_turned(self.product(weights, self.values))
        length, num_keys = size_of(weights, 2), size_of(weights, 3)
        shape = (num_groups, num_heads // num_groups * length, num_keys)
        rows = ops.reshape(weights, (first_size(self.values, length, num_keys), *shape))
        sums, batch = self.product(rows, self.values), first_size(weights, length)
        by_head = ops.reshape(sums, (batch, num_heads, length, self.values.shape[3]))
        return self._heads_and_positions_turned(by_head)

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, dtype: Any) -> Self:
        """See `HeadsFirst`.

        Args:
            keys: `(B, S, G, K)`.
            values: Of the same shape.
            dtype: Of the cache.

        Returns:
            The same.
        """
        keys, values = ops.cast(keys, dtype), ops.cast(values, dtype)
        if keys.shape[1] == 1:
            num_groups, width = keys.shape[2:]
            keys = ops.reshape(keys, (-1, num_groups, width, 1))
        else:
            keys = cls.transposed(keys, (0, 2, 3, 1))
        return cls(keys, cls._heads_and_positions_turned(values))

    @classmethod
    def _heads_and_positions_turned(cls, x: Tensor) -> Tensor:
        """Return `x` of four axes with the second and the third turned, by a reshape if it can."""
        first, second, width = x.shape[1:]
        if None in (first, second) or 1 not in (first, second):
            return cls.transposed(x, (0, 2, 1, 3))
        return ops.reshape(x, (-1, second, first, width))

    def written(self, keys: Tensor, values: Tensor, index: int | Tensor) -> Self:
        """See `HeadsFirst`. An update of four axes takes twice as long as one of a matrix.

        Args:
            keys: `(B, n, G, K)`.
            values: Of the same shape.
            index: The position.

        Returns:
            The cache.
        """
        count, num_groups, width = keys.shape[1:]
        new = self.of(keys, values, self.keys.dtype)
        num_slots = size_of(self.slots if ops.is_tensor(self.slots) else self.keys, -1)

        def with_piece(cache: Tensor, piece: Tensor, slot: int, shape: tuple[Any, ...]) -> Tensor:
            rows = ops.reshape(cache, (-1, num_slots * slot))
            piece = ops.reshape(piece, (-1, count * slot))
            rows = with_slice(rows, piece, 1, index * (count * slot))
            return ops.reshape(rows, shape)

        return type(self)(
            with_piece(self.keys, new.keys, 1, (-1, num_groups, width, num_slots)),
            with_piece(self.values, new.values, width, (-1, num_groups, num_slots, width)),
        )

    @staticmethod
    def softmax(logits: Tensor) -> Tensor:
        """See `KeysValues`.

        Args:
            logits: `(B, H, T, S)`.

        Returns:
            Weights that sum to one in each row.
        """
        return ops.exp(ops.log_softmax(logits, axis=-1))


class OneBeam(InPlaceHeadsFirst):
    """Read by one beam a sentence, which may be a single hypothesis: no rows to sort by memory."""

    def by_memory(self, queries: Tensor, num_groups: int) -> Tensor:
        """See `KeysValues`.

        Args:
            queries: `(B, T, H, K)`.
            num_groups: G.

        Returns:
            The same.
        """
        return queries
