"""The interface of relative positions, as attention calls it."""

from __future__ import annotations

from typing import Any, ClassVar

import keras

from keras_addnorm.basics.dtypes import require_dtype

Tensor = Any

MOST_DISTANCE = 1 << 20
"""Distance up to which some are told apart: each has a row of a table."""


class RelativePositions(keras.layers.Layer):
    """Positions that act inside self-attention, by how far apart a query and a key are.

    A kind overrides what it needs of the four methods; each of them does nothing by default. The
    *distances* are `key position - query position`, integers `(T, S)`.
    """

    is_shared: bool = False
    """Whether the layers of a stack share one table."""

    keeps_attention_plain: ClassVar[bool] = False
    """Whether the attention is `softmax(q k^T) v` once queries and keys have been rotated."""

    def __init__(self, *, dtype: Any = None, **kwargs: Any) -> None:
        require_dtype(dtype)
        super().__init__(dtype=dtype, **kwargs)

    def build(self, heads_shape: tuple[int, int]) -> None:
        """Make the tables for `heads_shape`, `(H, K)`: the number of heads and their width."""

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return queries or keys, changed according to their positions.

        Args:
            x: `(B, T, H, K)`.
            positions: Integers, `(T,)`.

        Returns:
            `(B, T, H, K)`.
        """
        return x

    def bias(self, distances: Tensor, is_causal: bool) -> Tensor | None:
        """Return what is added to the logits whatever the queries are.

        Args:
            distances: `(T, S)`.
            is_causal: Whether later keys are hidden.

        Returns:
            `(H, T, S)` in float32 or better, or `None`.
        """
        return None

    def query_logits(self, queries: Tensor, distances: Tensor) -> Tensor | None:
        """Return what is added to the logits for these queries.

        Args:
            queries: Scaled queries, `(B, T, H, K)`.
            distances: `(T, S)`.

        Returns:
            `(B, H, T, S)`, or `None`.
        """
        return None

    def context(self, weights: Tensor, distances: Tensor) -> Tensor | None:
        """Return what is added to the weighted sum of the values.

        Args:
            weights: Attention weights, `(B, H, T, S)`.
            distances: `(T, S)`.

        Returns:
            `(B, T, H, K)`, or `None`.
        """
        return None

    def fields(self) -> dict[str, Any]:
        """Return the kind's own arguments, as plain values."""
        return {}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), **self.fields()}
