"""Finds layers whose scheme wants a norm at the end of the stack, in a model that has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

from keras_addnorm import norms
from keras_addnorm.layers.add_norm import AddNorm
from keras_addnorm.layers.block import TransformerBlock
from keras_addnorm.layers.positional_embedding import PositionalEmbedding
from keras_addnorm.layers.stacks import TransformerStack

_NORMS = (
    norms.Norm,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.UnitNormalization,
)


def last_without_final_norm(model: Any) -> AddNorm | TransformerBlock | None:
    """Return the last layer whose scheme wants a final norm, where layers are used one by one.

    Args:
        model: A built Keras model; of a layer alone nothing can be said.

    Returns:
        The layer, or `None` where no scheme wants such a norm, or where a norm stands beside the
        layers. A norm inside a layer of the user's own is not seen.
    """
    if not isinstance(model, keras.Model):
        return None
    single = list(_outside_stacks(model))
    if any(isinstance(layer, _NORMS) for layer in single):
        return None
    wanting = [
        layer
        for layer in single
        if isinstance(layer, AddNorm | TransformerBlock) and layer.scheme.needs_final_norm
    ]
    return wanting[-1] if wanting else None


def _outside_stacks(layer: Any) -> Iterator[keras.layers.Layer]:
    """Yield the layers of a model, without those inside of what has norms of its own."""
    if isinstance(layer, TransformerStack | PositionalEmbedding):
        return
    yield layer
    if not isinstance(layer, AddNorm | TransformerBlock):
        for child in getattr(layer, "_layers", ()):
            yield from _outside_stacks(child)
