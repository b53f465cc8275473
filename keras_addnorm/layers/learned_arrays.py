"""The arrays that a scheme's plan asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_addnorm import schemes
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers.projection import require_hidden_dim


def make_array(
    layer: keras.layers.Layer, array: schemes.LearnedArray, hidden_dim: int
) -> keras.Variable:
    """Add an array of a scheme's own, as its plan says, to the layer that owns it."""
    shape = array.sizes(hidden_dim)
    values = np.asarray(array.initial_value, "float64")
    if values.shape not in ((), shape):
        raise ArgumentError(
            f"The initial value of the scheme's array '{array.name}' does not fit.",
            f"a number, or tuples of the shape {shape}",
            received=f"the shape: {values.shape}",
        )
    # Not cast to half precision: coefficients are float32, as the gains of norms are.
    return layer.add_weight(
        shape=shape,
        initializer=_Values(values),
        name=array.name,
        autocast=False,
        trainable=array.is_trained,
    )


class LearnedArrays(keras.layers.Layer):
    """Holds the arrays that a scheme wants at the end of a stack.

    Args:
        plan: What the scheme says of each.
        **kwargs: `name` and `dtype`.
    """

    def __init__(self, plan: Iterable[schemes.LearnedArray], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._plan = tuple(plan)

    def build(self, x_shape: Any) -> None:
        """Make `arrays`, by their names, for a stream `(B, T, D)`."""
        hidden_dim = require_hidden_dim(x_shape)
        self.arrays = {array.name: make_array(self, array, hidden_dim) for array in self._plan}


class _Values(keras.initializers.Initializer):
    """Given numbers, one or all. Weights are made once, and files hold them: no config."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> keras.KerasTensor:
        """Return the numbers."""
        return keras.ops.convert_to_tensor(np.broadcast_to(self.values, shape), dtype=dtype)
