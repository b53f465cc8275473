"""Rotary positions (RoPE): rotates queries and keys by angles proportional to their positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import is_number
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers.positions.absolute import Angles
from keras_addnorm.layers.positions.relative import RelativePositions

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class RotaryPositions(RelativePositions):
    """Rotates channels `i` and `i + K/2` of queries and keys by `position * base^(-2i/K)`.

    Seen as complex numbers `z_i = x_i + j x_(i + K/2)`, that is `z_i exp(j position base^(-2i/K))`;
    the product of a query and a key then depends on the difference of their positions alone. The
    pairing is by *halves*, as in GPT-NeoX and Llama; the paper pairs neighbours (`2i`, `2i + 1`),
    which is the same up to the order of the channels in the query and key kernels.

    Args:
        base: Sets the slowest rotation: about `2 pi base` positions.
        scaling: For sequences longer than those of training: `{"name": "linear", "factor": f}`
            divides positions by `f`, `{"name": "ntk", "factor": f}` multiplies the base by
            `f^(K/(K-2))`, which slows the slowest pair by `f` and leaves the fastest as it is.
        **kwargs: The arguments of a Keras layer.

    Raises:
        ValueError: If the scaling is unknown, a number is not positive, or the width of a head is
            odd.

    Reference:
        Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, section
        3.2 (arXiv 2104.09864); Chen et al., "Extending Context Window of Large Language Models via
        Positional Interpolation", 2023 (linear); bloc97, "NTK-aware scaled RoPE", 2023.
    """

    keeps_attention_plain: ClassVar[bool] = True

    def __init__(
        self, base: float = 10000.0, scaling: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not is_number(base, above=1):
            raise ArgumentError("`base` of rotary positions: expected > 1.", base=base)
        self.base = base
        if not isinstance(scaling, dict | None):
            raise ArgumentError(
                "The scaling of rotary positions does not fit.",
                "a dict with a 'name' and a 'factor'",
                value=scaling,
            )
        self.scaling = None if scaling is None else dict(scaling)
        self._frequencies = _scaled(self.scaling)

    def build(self, heads_shape: tuple[int, int]) -> None:
        """Compute the frequencies for `heads_shape`, `(H, K)`."""
        head_dim = heads_shape[1]
        if head_dim % 2:
            raise ArgumentError(
                "Rotary positions turn pairs of channels.",
                "an even width of a head",
                "Choose `num_heads` or `head_dim` otherwise.",
                head_dim=head_dim,
            )
        self._angles = Angles(self._frequencies(float(self.base), head_dim))

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate queries or keys `(B, T, H, K)`; angles and products are in float32 or better."""
        dtype = keras.backend.result_type(x.dtype, "float32")
        angles = self._angles(positions, dtype)[:, None]  # (T, 1, K/2)
        cosine, sine = ops.cos(angles), ops.sin(angles)
        half = x.shape[-1] // 2
        first, second = ops.cast(x[..., :half], dtype), ops.cast(x[..., half:], dtype)
        rotated = [first * cosine - second * sine, second * cosine + first * sine]
        return ops.cast(ops.concatenate(rotated, axis=-1), x.dtype)

    def fields(self) -> dict[str, Any]:
        """Return the kind's own arguments."""
        return {"base": self.base, "scaling": self.scaling}


def _frequencies(base: float, head_dim: int) -> np.ndarray:
    return base ** (-np.arange(0, head_dim, 2) / head_dim)


def _linear(base: float, head_dim: int, factor: float) -> np.ndarray:
    return _frequencies(base, head_dim) / factor


def _ntk(base: float, head_dim: int, factor: float) -> np.ndarray:
    # Of two channels, the one pair is the fastest: there is nothing to slow down.
    exponent = head_dim / (head_dim - 2) if head_dim > 2 else 0.0
    return _frequencies(base * factor**exponent, head_dim)


_SCALINGS = {"linear": _linear, "ntk": _ntk}


def _scaled(scaling: dict[str, Any] | None) -> Callable[[float, int], np.ndarray]:
    if scaling is None:
        return _frequencies
    fits = set(scaling) == {"name", "factor"} and is_number(scaling["factor"], above=0)
    if not fits or scaling["name"] not in list(_SCALINGS):
        raise ArgumentError(
            "The scaling of rotary positions does not fit.",
            f"a 'name' among {', '.join(_SCALINGS)} and a 'factor' > 0",
            value=scaling,
        )
    scaled = _SCALINGS[scaling["name"]]
    factor = float(scaling["factor"])
    return lambda base, head_dim: scaled(base, head_dim, factor)
