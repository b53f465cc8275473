"""Caches as TensorFlow writes and reads them fastest without XLA."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_addnorm.decoding.compilation import product_of_rows, transposed, with_slice
from keras_addnorm.layers.caches import HeadsFirst

Tensor = Any


class InPlaceHeadsFirst(HeadsFirst):
    """Written in place: for loops of TensorFlow without XLA, which cannot compile it.

    Read by operations that oneDNN leaves to TensorFlow: those that it takes over hand the smallest
    of products, rows and transpositions to other threads, and wait for them.
    """

    product = staticmethod(product_of_rows)
    transposed = staticmethod(transposed)

    @staticmethod
    def with_piece(cache: Tensor, piece: Tensor, axis: int, index: int | Tensor) -> Tensor:
        """See `HeadsFirst`.

        Args:
            cache: Keys or values.
            piece: Their new entries.
            axis: Of the positions.
            index: The position.

        Returns:
            A tensor of the shape of `cache`.
        """
        return with_slice(cache, piece, axis, index * piece.shape[axis])

    @staticmethod
    def softmax(logits: Tensor) -> Tensor:
        """See `KeysValues`.

        Args:
            logits: `(B, H, T, S)`.

        Returns:
            Weights that sum to one in each row.
        """
        return ops.exp(ops.log_softmax(logits, axis=-1))


class OneQuery(InPlaceHeadsFirst):
    """Read by one query a sentence: for searches that follow one hypothesis of each."""

    def by_memory(self, queries: Tensor, num_groups: int) -> Tensor:
        """See `KeysValues`.

        Args:
            queries: `(B, 1, H, K)`.
            num_groups: G.

        Returns:
            The same.
        """
        return queries
