"""Quantised layers: which they are, and how a new layer becomes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras


def quantized_layers(model: Any) -> dict[str, keras.layers.Layer]:
    """Return the quantised layers of a model, by their names in it."""
    return {
        name: layer
        for name, layer in _by_name(model).items()
        if layer.quantization_mode is not None
    }


def quantized_policies(model: Any) -> dict[str, Any]:
    """Return the serialised dtype policies of the quantised layers of a model, by their names."""
    return {
        name: keras.dtype_policies.serialize(layer.dtype_policy)
        for name, layer in quantized_layers(model).items()
    }


def quantize_layers(model: Any, policies: Mapping[str, Any]) -> None:
    """Quantise the layers of a model as `quantized_policies` described them."""
    layers = _by_name(model)
    for name, policy in policies.items():
        # Of a layer that is built, Keras quantises the weights with it.
        layers[name].dtype_policy = keras.dtype_policies.deserialize(policy)


def _by_name(model: Any) -> dict[str, keras.layers.Layer]:
    # A layer that was built when it was made, an embedding, has no path.
    return {layer.path or layer.name: layer for layer in model._flatten_layers()}
