"""Absolute positions: vectors that are added to token embeddings."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers.positions.angles import Angles
from keras_addnorm.layers.positions.sinusoids import Sinusoids

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class SinusoidalPositions(keras.layers.Layer):
    """`PE(pos, 2i) = sin(pos / 10000^(2i/D))`, `PE(pos, 2i+1) = cos(pos / 10000^(2i/D))`.

    Any position can be asked for; see `Angles` for how it stays exact. Other toolkits have variants
    of the formula, which their models need: with `layout="halves"` all sines stand before all
    cosines, and with `timescales="half_minus_one"` the last pair has exactly the frequency 1/10000,
    `10000^(-i / (D/2 - 1))` for pair i.

    Args:
        hidden_dim: Number of channels, D.
        max_length: Unused; there is no limit.
        layout: `"interleaved"`, sine and cosine side by side, or `"halves"`, for which D is even.
        timescales: `"half"`, frequencies `10000^(-i / (D/2))`, or `"half_minus_one"`.
        offset: What is added to each position: that of the first token.
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If a field, or D for a variant, does not fit.

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.5; the authors' code,
        tensor2tensor, for halves and `half_minus_one`.
    """

    def __init__(
        self,
        hidden_dim: int,
        max_length: int | None = None,
        layout: str = "interleaved",
        timescales: str = "half",
        offset: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.max_length = max_length
        self.layout = layout
        self.timescales = timescales
        self.offset = offset
        self._sinusoids = Sinusoids(layout, timescales, offset)
        self._angles = Angles(self._sinusoids.frequencies(hidden_dim))
        self.built = True  # There are no weights.

    def call(self, positions: Tensor) -> Tensor:
        """Return the encoding of positions: `(T,)` -> `(T, D)` in the compute dtype."""
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        angles = self._angles(positions + self.offset if self.offset else positions, dtype)
        sines, cosines = ops.sin(angles), ops.cos(angles)
        if self.layout == "halves":
            encoding = ops.concatenate([sines, cosines], axis=-1)
        else:  # sine and cosine side by side: (T, D/2, 2) -> (T, D)
            pairs = ops.stack([sines, cosines], axis=-1)
            encoding = ops.reshape(pairs, (-1, 2 * angles.shape[-1]))[:, : self.hidden_dim]
        return ops.cast(encoding, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = {"hidden_dim": self.hidden_dim, "max_length": self.max_length}
        return {**super().get_config(), **config, **dataclasses.asdict(self._sinusoids)}


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
        if not is_whole(max_length, 1):
            raise ArgumentError(
                "Learned positions need a table of a known size.",
                "`max_length` >= 1",
                "Set it to the longest sequence you will use.",
                max_length=max_length,
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
