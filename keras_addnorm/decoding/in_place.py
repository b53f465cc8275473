"""Caches as TensorFlow writes them fastest without XLA."""

from __future__ import annotations

from typing import Any

from keras_addnorm.decoding.compilation import with_slice
from keras_addnorm.layers.caches import HeadsFirst, turned

Tensor = Any


class InPlaceHeadsFirst(HeadsFirst):
    """Written in place: for loops of TensorFlow without XLA, which cannot compile it."""

    def written(self, keys: Tensor, values: Tensor, index: int | Tensor) -> InPlaceHeadsFirst:
        """See `HeadsFirst`.

        Args:
            keys: `(B, n, G, K)`.
            values: Of the same shape.
            index: The position.

        Returns:
            The cache.
        """
        keys, values = turned(keys, values, self.keys.dtype)
        start = index * keys.shape[2]
        return InPlaceHeadsFirst(
            with_slice(self.keys, keys, 2, start), with_slice(self.values, values, 1, start)
        )
