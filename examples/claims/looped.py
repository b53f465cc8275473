"""A deep encoder that runs one layer in a loop: compiling takes no longer than for that layer."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.layers import TransformerEncoder


class LoopedEncoder(keras.layers.Layer):
    """The same function of the same weights, which lie layer by layer in one array a kind.

    Only for schemes whose layers differ in nothing but their weights, and without dropout.

    Args:
        encoder: An encoder that is built.
    """

    def __init__(self, encoder: TransformerEncoder) -> None:
        super().__init__()
        layer = encoder.layers[0]
        self.final_norm = encoder.final_norm
        self.stacked = [
            self.add_weight(
                shape=(len(encoder.layers), *each.shape), name=each.path.replace("/", "_")
            )
            for each in layer.trainable_variables
        ]

        # In a closure, as Keras would count the weights of a layer in an attribute as its own.
        def step(x: Any, weights: Any) -> tuple[Any, None]:
            others = [each.value for each in layer.non_trainable_variables]
            return layer.stateless_call(weights, others, x)[0], None

        self._step = step
        self.built = True
        self.take(encoder)

    def take(self, encoder: TransformerEncoder) -> None:
        """Take over the layers' weights of an encoder of the same shape."""
        kinds = zip(*(layer.trainable_variables for layer in encoder.layers), strict=True)
        for stacked, variables in zip(self.stacked, kinds, strict=True):
            stacked.assign(np.stack([ops.convert_to_numpy(each) for each in variables]))
        if self.final_norm is not None and encoder.final_norm is not self.final_norm:
            self.final_norm.set_weights(encoder.final_norm.get_weights())

    def call(self, x: Any) -> Any:
        """Run the layers one after the other."""
        x, _ = ops.scan(self._step, x, [each.value for each in self.stacked])
        return x if self.final_norm is None else self.final_norm(x)

    def compute_output_spec(self, x: Any) -> Any:
        """Return the shape of the input, without tracing the loop."""
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)
