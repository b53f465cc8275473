"""Layers that take the state of several streams in place of a stream."""

from __future__ import annotations

from typing import Any

import keras

from keras_addnorm import schemes


class TakesState(keras.layers.Layer):
    """A layer whose first input may be a `StreamState`, once it is built."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer."""
        if args and isinstance(args[0], schemes.StreamState) and not self.built:
            raise ValueError(
                f"The layer '{self.name}' cannot learn its width from a state of several streams. "
                "Expected a layer that is built. Received: a StreamState at its first call. Say "
                "layer.build((None, None, D)) before, with the width D of the stream."
            )
        return super().__call__(*args, **kwargs)
