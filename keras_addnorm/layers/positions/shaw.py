"""Shaw's relative positions: learned vectors of distances, added to keys and to values."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers.positions.relative import MOST_DISTANCE, RelativePositions

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class ShawPositions(RelativePositions):
    """`q (k + a^K[d])^T` are the logits and `sum w (v + a^V[d])` the context, `d` the distance.

    Distances are clipped to `max_distance` either way. Each layer has tables of its own, which its
    heads share.

    Args:
        max_distance: The clipping distance, the paper's k.
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If `max_distance` is not positive.

    Weights:
        `key_embeddings`, `value_embeddings`: `(2 max_distance + 1, K)`.

    Reference:
        Shaw et al., "Self-Attention with Relative Position Representations", 2018, equations 3 to
        5 (arXiv 1803.02155).
    """

    def __init__(self, max_distance: int = 16, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not is_whole(max_distance, 1, MOST_DISTANCE):
            raise ArgumentError(
                "Shaw's positions tell distances apart up to a limit.",
                f"1 <= `max_distance` <= {MOST_DISTANCE}",
                max_distance=max_distance,
            )
        self.max_distance = max_distance

    def build(self, heads_shape: tuple[int, int]) -> None:
        """Make the tables for `heads_shape`, `(H, K)`."""
        shape = (2 * self.max_distance + 1, heads_shape[1])
        self.key_embeddings = self.add_weight(
            shape=shape, initializer="glorot_uniform", name="key_embeddings"
        )
        self.value_embeddings = self.add_weight(
            shape=shape, initializer="glorot_uniform", name="value_embeddings"
        )

    def query_logits(self, queries: Tensor, distances: Tensor) -> Tensor:
        """Return `q a^K[d]^T`: `(B, T, H, K)` and `(T, S)` -> `(B, H, T, S)`."""
        return ops.einsum("bthk,tsk->bhts", queries, self._look_up(self.key_embeddings, distances))

    def context(self, weights: Tensor, distances: Tensor) -> Tensor:
        """Return `sum w a^V[d]`: `(B, H, T, S)` and `(T, S)` -> `(B, T, H, K)`."""
        vectors = self._look_up(self.value_embeddings, distances)
        return ops.einsum("bhts,tsk->bthk", weights, vectors)

    def fields(self) -> dict[str, Any]:
        """Return the kind's own arguments."""
        return {"max_distance": self.max_distance}

    def _look_up(self, table: Any, distances: Tensor) -> Tensor:
        # (2k + 1, K), (T, S) -> (T, S, K)
        table = ops.cast(table, self.compute_dtype)
        return ops.take(table, shaw_index(distances, self.max_distance), axis=0)


def shaw_index(distances: Tensor, max_distance: int) -> Tensor:
    """Return the clipped distances as rows of a table of `2 max_distance + 1` rows."""
    return ops.clip(distances, -max_distance, max_distance) + max_distance
