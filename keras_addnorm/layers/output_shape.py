"""The output shape of layers that return what they are given, and more on request."""

from __future__ import annotations

from typing import Any

import keras


class ShapeOfInput(keras.layers.Layer):
    """A layer whose output has the shape of its first input; `TimeDistributed` asks for it."""

    def compute_output_shape(
        self, x_shape: tuple[int | None, ...], *other_shapes: Any, **named_shapes: Any
    ) -> tuple[int | None, ...]:
        """Return the shape of `x`."""
        return tuple(x_shape)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Trace the call: caches, attention weights and states are outputs, too."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)
