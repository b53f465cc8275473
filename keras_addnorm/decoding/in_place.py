"""Caches as TensorFlow writes them fastest without XLA."""

from __future__ import annotations

from typing import Any

from keras_addnorm.decoding.compilation import with_slice
from keras_addnorm.layers.caches import HeadsFirst

Tensor = Any


class InPlaceHeadsFirst(HeadsFirst):
    """Written in place: for loops of TensorFlow without XLA, which cannot compile it."""

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
