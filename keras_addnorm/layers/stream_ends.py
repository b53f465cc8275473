"""Both ends of a stack whose scheme has several streams, or a memory of depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_addnorm import schemes
from keras_addnorm.layers.learned_arrays import make_array
from keras_addnorm.layers.projection import require_hidden_dim

Tensor = Any


class StreamEnds(keras.layers.Layer):
    """Opens the state of a stack and closes it, with the arrays that the scheme wants at the end.

    Args:
        scheme: The scheme of the stack.
        position: That of the stack's last sublayer.
        **kwargs: `name` and `dtype`.

    Weights:
        The arrays of the scheme's `end_plan`, in its order.
    """

    def __init__(
        self, scheme: schemes.StreamScheme, position: schemes.StackPosition, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.scheme = scheme
        self._plan = scheme.end_plan(position)
        self.supports_masking = True

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        """Make the arrays, for a stream `(B, T, D)`."""
        hidden_dim = require_hidden_dim(x_shape)
        self._arrays = {
            array.name: make_array(self, array, hidden_dim) for array in self._plan.arrays
        }

    def call(
        self,
        x: Tensor | schemes.StreamState,
        final_norm: Callable[[Tensor], Tensor] | None = None,
    ) -> schemes.StreamState | Tensor:
        """Open a state, or close it.

        Args:
            x: The stream at the bottom of the stack, `(B, T, D)`, or the state at its top.
            final_norm: With a state, the stack's final norm, if the scheme needs one.

        Returns:
            The state of a stream; of a state, `(B, T, D)`.
        """
        if not isinstance(x, schemes.StreamState):
            return self.scheme.open(x)
        norm = {} if final_norm is None else {"final_norm": final_norm}
        return self.scheme.close(x, schemes.ResidualParts(self._plan, **norm, **self._arrays))
