"""LoRA (low-rank adaptation): what layers that offer it share.

Keras adds two matrices beside a kernel or a table: the layer computes with
`W + (alpha / rank) A B`.
"""

from __future__ import annotations

from typing import Any

import keras

Tensor = Any

_WEIGHTS = {"_kernel": "kernel", "_embeddings": "embeddings"}
"""Attributes of Keras' layers: the variable that LoRA adapts, and the merged weight."""


def lora_layers(model: Any) -> list[keras.layers.Layer]:
    """Return the layers of a model, or of a layer, in which LoRA is switched on."""
    return [layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False)]


def lora_variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the two matrices that LoRA has added to a layer, A and B."""
    return [
        variable
        for name, variable in vars(layer).items()
        if name.startswith("lora_") and isinstance(variable, keras.Variable)
    ]


def merged_weight(layer: keras.layers.Layer) -> tuple[str, Tensor]:
    """Return the path of the variable that LoRA adapts, and the weight that the layer has."""
    (name,) = (name for name in _WEIGHTS if hasattr(layer, name))
    return getattr(layer, name).path, getattr(layer, _WEIGHTS[name])


def redraw(matrix: keras.Variable) -> None:
    """Draw LoRA's first matrix anew, as `enable_lora` does."""
    matrix.assign(keras.initializers.HeUniform()(matrix.shape, dtype=matrix.dtype))
