"""Finds layers whose scheme wants a norm at the end of the stack, in a model that has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_addnorm import norms
from keras_addnorm.diagnostics.report_data import Verdict
from keras_addnorm.layers import AddNorm, PositionalEmbedding
from keras_addnorm.layers.block import TransformerBlock
from keras_addnorm.layers.stacks import TransformerStack
from keras_addnorm.layers.sublayers import Sublayer

_NORMS = (
    norms.Norm,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.UnitNormalization,
)


def missing_final_norm(model: Any, sublayers: Mapping[str, Sublayer]) -> tuple[Verdict, ...]:
    """Say that layers used one by one lack the norm that a stack of them would end with.

    Args:
        model: A built Keras model; of a layer alone nothing is said.
        sublayers: Its sublayers by name.

    Returns:
        One verdict, or none: where no scheme wants such a norm, or a norm stands beside the layers.
    """
    if not isinstance(model, keras.Model):
        return ()
    single = list(_outside_stacks(model))
    if any(isinstance(layer, _NORMS) for layer in single):
        return ()
    wanting = [
        layer
        for layer in single
        if isinstance(layer, AddNorm | TransformerBlock) and layer.scheme.needs_final_norm
    ]
    if not wanting:
        return ()
    last = wanting[-1]
    inside = {id(layer) for layer in (last, *last._flatten_layers())}
    names = [name for name, sublayer in sublayers.items() if id(sublayer.add_norm) in inside]
    return (
        Verdict(
            kind="no_final_norm",
            sublayers=tuple(names[-1:]),
            text=f"No norm follows '{last.name}', and {last.scheme!r} leaves the stream to one at "
            "the end of the stack.",
            threshold="such a layer stands outside a stack, and no norm layer beside it",
            advice="Put keras.layers.LayerNormalization(epsilon=1e-6) behind the last layer, or "
            "use a TransformerEncoder(num_layers=...) or TransformerDecoder, which has it. A norm "
            "inside a layer of your own is not seen: then all is well.",
        ),
    )


def _outside_stacks(layer: Any) -> Iterator[keras.layers.Layer]:
    """Yield the layers of a model, without those inside of what has norms of its own."""
    if isinstance(layer, TransformerStack | PositionalEmbedding):
        return
    yield layer
    if not isinstance(layer, AddNorm | TransformerBlock):
        for child in getattr(layer, "_layers", ()):
            yield from _outside_stacks(child)
