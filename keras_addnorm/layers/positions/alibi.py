"""ALiBi: attention falls off linearly with the distance, at a rate of its own in each head."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.layers.positions.relative import RelativePositions

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class AlibiPositions(RelativePositions):
    """`-slope_h * |distance|` is added to the logits of head `h`.

    Nothing is learned and there is no limit. The decoder's causal attention sees earlier keys
    only, as in the paper; the encoder looks both ways, symmetrically.

    Reference:
        Press et al., "Train Short, Test Long: Attention with Linear Biases Enables Input Length
        Extrapolation", 2021, section 3 (arXiv 2108.12409).
    """

    def build(self, heads_shape: tuple[int, int]) -> None:
        """Compute the slopes for `heads_shape`, `(H, K)`."""
        self._slopes = alibi_slopes(heads_shape[0])

    def bias(self, distances: Tensor, is_causal: bool) -> Tensor:
        """Return `-slope |distance|`: `(T, S)` -> `(H, T, S)`."""
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        slopes = ops.convert_to_tensor(self._slopes[:, None, None], dtype)
        return -slopes * ops.cast(ops.abs(distances), dtype)


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Return the slope of each head.

    Args:
        num_heads: Number of heads, H.

    Returns:
        `2^(-8/H), 2^(-16/H), ..., 2^-8` if H is a power of two. Otherwise, as in the authors'
        code, the slopes of the next lower power of two n, then every other slope of `2 n` heads.
    """
    lower = 2 ** int(math.log2(num_heads))
    slopes = 2.0 ** (-8.0 * np.arange(1, lower + 1) / lower)
    between = 2.0 ** (-8.0 * np.arange(1, 2 * lower + 1, 2) / (2 * lower))
    return np.concatenate([slopes, between[: num_heads - lower]])
