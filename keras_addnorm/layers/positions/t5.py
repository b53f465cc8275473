"""T5's relative position bias: one learned number for each head and bucket of distances."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import is_whole, require_bool
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import to_tensor
from keras_addnorm.layers.positions.relative import MOST_DISTANCE, RelativePositions

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class T5Positions(RelativePositions):
    """`table[bucket(distance), h]` is added to the logits of head `h`.

    Small distances have a bucket each, larger ones share buckets whose width grows
    logarithmically, and all from `max_distance` on share the last. Causal attention has all
    buckets for the past; otherwise the past and the future have half each. As in T5, the layers of
    a stack share one table; in umT5 each has its own. (T5 leaves out the factor 1/sqrt(K) of the
    logits as well; that is `AttentionConfig(scale=1.0)`.)

    Args:
        num_buckets: Number of buckets, a multiple of four.
        max_distance: Distance from which on all share a bucket.
        is_shared: Whether the layers of a stack share one table.
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If the buckets do not fit the distance.

    Weights:
        `embeddings`: `(num_buckets, H)`.

    Reference:
        Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
        Transformer", 2020, section 2.1 (arXiv 1910.10683).
    """

    def __init__(
        self,
        num_buckets: int = 32,
        max_distance: int = 128,
        is_shared: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        fits = is_whole(num_buckets, 4) and not num_buckets % 4
        require_bool(is_shared=is_shared)
        if not fits or not is_whole(max_distance, num_buckets // 2 + 1, MOST_DISTANCE):
            raise ArgumentError(
                "The buckets of T5's positions do not fit.",
                "`num_buckets` to be a multiple of 4 and `max_distance` > `num_buckets` / 2, at "
                f"most {MOST_DISTANCE}",
                num_buckets=num_buckets,
                max_distance=max_distance,
            )
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.is_shared = is_shared

    def build(self, heads_shape: tuple[int, int]) -> None:
        """Make the table for `heads_shape`, `(H, K)`."""
        self.embeddings = self.add_weight(
            shape=(self.num_buckets, heads_shape[0]),
            initializer="glorot_uniform",
            name="embeddings",
        )

    def bias(self, distances: Tensor, is_causal: bool) -> Tensor:
        """Look distances up: `(T, S)` -> `(H, T, S)`. If causal, all buckets are for the past."""
        farthest = self.max_distance
        every_distance = np.arange(-farthest, farthest + 1)
        buckets = t5_buckets(every_distance, self.num_buckets, farthest, is_causal)
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        # (num_buckets, H) -> (2 farthest + 1, H) -> (T, S, H) -> (H, T, S)
        table = ops.take(ops.cast(self.embeddings, dtype), to_tensor(buckets), axis=0)
        index = ops.clip(distances, -farthest, farthest) + farthest
        return ops.transpose(ops.take(table, index, axis=0), (2, 0, 1))

    def fields(self) -> dict[str, Any]:
        """Return the kind's own arguments."""
        return {
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "is_shared": self.is_shared,
        }


def t5_buckets(
    distances: np.ndarray, num_buckets: int = 32, max_distance: int = 128, is_causal: bool = False
) -> np.ndarray:
    """Return the bucket of each distance.

    Args:
        distances: `key position - query position`, integers of any shape.
        num_buckets: Number of buckets.
        max_distance: Distance from which on all share a bucket.
        is_causal: Whether all buckets are for the past (the future then shares bucket 0 with
            distance 0: it is hidden anyway).

    Returns:
        Integers from 0 to `num_buckets - 1`.
    """
    if not is_causal:
        num_buckets //= 2
    past = np.maximum(-distances, 0) if is_causal else np.abs(distances)
    first_shared = num_buckets // 2
    # Where each shared bucket starts. Computed here, in float64 and once, and not for each
    # distance on the device: a logarithm's last digit would decide about the bucket.
    growth = math.log(max_distance / first_shared) / (num_buckets - first_shared)
    starts = first_shared * np.exp(growth * np.arange(1, num_buckets - first_shared))
    shared = first_shared + (past[..., None] >= starts - 1e-6).sum(-1)
    buckets = np.where(past < first_shared, past, shared)
    return buckets if is_causal else buckets + num_buckets * (distances > 0)
