"""Absolute positions: vectors that are added to token embeddings."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import is_whole
from keras_addnorm.basics.errors import ArgumentError

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


_LAYOUTS = ("interleaved", "halves")
_TIMESCALES = ("half", "half_minus_one")


@dataclasses.dataclass(frozen=True)
class Sinusoids:
    """Which sines and cosines stand in which channels; see `SinusoidalPositions`.

    Args:
        layout: `"interleaved"` or `"halves"`.
        timescales: `"half"` or `"half_minus_one"`.
        offset: What is added to each position.

    Raises:
        ValueError: If a field does not fit.
    """

    layout: str = "interleaved"
    timescales: str = "half"
    offset: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("layout", _LAYOUTS), ("timescales", _TIMESCALES)):
            value = getattr(self, name)
            if value not in choices:
                raise ArgumentError(
                    f"`{name}` of sinusoidal positions: expected one of {', '.join(choices)}.",
                    value=value,
                )
        if isinstance(self.offset, bool) or not isinstance(self.offset, int) or self.offset < 0:
            raise ArgumentError(
                "`offset` of sinusoidal positions: expected an integer >= 0.", offset=self.offset
            )

    def frequencies(self, hidden_dim: int) -> np.ndarray:
        """Return radians a position, one for each pair of a sine and a cosine.

        Args:
            hidden_dim: Number of channels, D.

        Returns:
            `(D/2,)`, float64; of the paper's own variant, an odd D is rounded up.

        Raises:
            ValueError: If the variant has no such width.
        """
        self.check_width(hidden_dim)
        half = hidden_dim / 2
        pairs = np.arange((hidden_dim + 1) // 2)
        return 10000.0 ** (-pairs / (half if self.timescales == "half" else half - 1))

    def check_width(self, hidden_dim: int) -> None:
        """Check that the variant has a width, without making anything of that size."""
        is_own = self.layout == "interleaved" and self.timescales == "half"
        least = 4 if self.timescales == "half_minus_one" else 2
        if not is_own and (hidden_dim % 2 or hidden_dim < least):
            raise ArgumentError(
                "These sinusoidal positions need pairs of channels.",
                f"an even `hidden_dim` >= {least}",
                received=f"hidden_dim={hidden_dim}, {self}",
            )


class Angles:
    """`position * frequency` modulo `2 pi`, for a list of frequencies.

    The error stays below 1e-6 for thousands of positions; a float32 product of position and
    frequency is off by 1e-4 at position 1,000 already. The frequency is split into a whole number
    of 2^-32 turns, whose integer product with a position wraps around exactly as angles do, and a
    small remainder, whose product is added in floating point.

    Args:
        frequencies: Radians a position, `(n,)`, float64, each below `2 pi`.
    """

    def __init__(self, frequencies: np.ndarray) -> None:
        turns = frequencies / (2.0 * math.pi)
        steps = np.round(turns * 2.0**32)
        self._steps = steps.astype("int64").astype("int32")
        # Half a step, times thousands of positions, would be seen in the sixth digit.
        self._remainders = (turns * 2.0**32 - steps) * (math.pi / 2.0**31)

    def __call__(self, positions: Tensor, dtype: str) -> Tensor:
        """Return the angles of positions in radians from -pi to pi: `(T,)` -> `(T, n)`."""
        # (T,) x (n,) -> (T, n)
        positions = ops.expand_dims(ops.cast(positions, "int32"), -1)
        phases = positions * ops.convert_to_tensor(self._steps, "int32")
        angles = ops.cast(phases, dtype) * (math.pi / 2.0**31)
        return angles + ops.cast(positions, dtype) * ops.convert_to_tensor(self._remainders, dtype)
