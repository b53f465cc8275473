"""Absolute positions: vectors that are added to token embeddings."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.layers.positions.angles import Angles

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class SinusoidalPositions(keras.layers.Layer):
    """`PE(pos, 2i) = sin(pos / 10000^(2i/D))`, `PE(pos, 2i+1) = cos(pos / 10000^(2i/D))`.

    Any position can be asked for; see `Angles` for how it stays exact.

    Args:
        hidden_dim: Number of channels, D.
        max_length: Unused; there is no limit.
        **kwargs: The arguments of a Keras layer.

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
    """

    def __init__(self, hidden_dim: int, max_length: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.max_length = max_length
        pairs = np.arange((hidden_dim + 1) // 2)
        self._angles = Angles(10000.0 ** (-2.0 * pairs / hidden_dim))
        self.built = True  # There are no weights.

    def call(self, positions: Tensor) -> Tensor:
        """Return the encoding of positions: `(T,)` -> `(T, D)` in the compute dtype."""
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        angles = self._angles(positions, dtype)
        # sine and cosine side by side: (T, D/2, 2) -> (T, D)
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        encoding = ops.reshape(pairs, (-1, 2 * angles.shape[-1]))[:, : self.hidden_dim]
        return ops.cast(encoding, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = {"hidden_dim": self.hidden_dim, "max_length": self.max_length}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="keras_addnorm")
class LearnedPositions(keras.layers.Layer):
    """One learned vector a position.

    Args:
        hidden_dim: Number of channels, D.
        max_length: Number of positions.
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If there is no `max_length`.

    Weights:
        `embeddings`: `(max_length, D)`.

    Reference:
        Gehring et al., "Convolutional Sequence to Sequence Learning", 2017, section 3.1.
    """

    def __init__(self, hidden_dim: int, max_length: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if max_length is None or max_length < 1:
            raise ValueError(
                "Learned positions need a table of a known size. Expected max_length >= 1. "
                f"Received: max_length={max_length}. Set it to the longest sequence you will use."
            )
        self.hidden_dim = hidden_dim
        self.max_length = max_length
        self.embeddings = self.add_weight(
            shape=(max_length, hidden_dim),
            initializer=keras.initializers.RandomNormal(stddev=hidden_dim**-0.5),
            name="embeddings",
        )
        self.built = True

    def call(self, positions: Tensor) -> Tensor:
        """Return the vectors of positions: `(T,)` -> `(T, D)` in the compute dtype."""
        return ops.take(ops.cast(self.embeddings, self.compute_dtype), positions, axis=0)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = {"hidden_dim": self.hidden_dim, "max_length": self.max_length}
        return {**super().get_config(), **config}
