"""Rebuilds a model from a changed config, with the weights of the given one."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.layers.adapted import (
    lora_layers,
    lora_variables,
    merged_weight,
    quantized_layers,
)
from keras_addnorm.models.seq2seq import Seq2SeqTransformer, require_model

_FOLDED = ("/branch_scale", "/step", "/mean_size", "/mean_square")
"""A scheme's gain; the counts and sizes of norms that taper off."""


def rebuild(model: Seq2SeqTransformer, **changes: Any) -> Seq2SeqTransformer:
    """Build a model with some fields of the config changed, and copy the weights to it.

    What LoRA has learned is merged into the kernels and tables: the new model has no LoRA.

    Args:
        model: The model to copy, which does not change.
        **changes: Fields of the config, such that the new model has no weights that `model` lacks.

    Returns:
        A new model of the same precision, not compiled.

    Raises:
        TypeError: If it is no `Seq2SeqTransformer`.
        ValueError: If the model is quantised, or its layers have weights that the new ones lack.
    """
    values = _values(require_model(model))
    config = dataclasses.replace(model.config, **changes)
    new = type(model)(config, dtype=model.decoder.dtype_policy, name=model.name)
    for weight in new.weights:
        weight.assign(to_numpy(values.pop(weight.path)))
    _require_nothing_left(values, new)
    return new


def _values(model: Seq2SeqTransformer) -> dict[str, Any]:
    """Return the values to copy, by the paths of the weights."""
    require_floats(model)
    layers = lora_layers(model)
    learned = {id(variable) for layer in layers for variable in lora_variables(layer)}
    values = {weight.path: weight for weight in model.weights if id(weight) not in learned}
    return values | dict(merged_weight(layer) for layer in layers)


def require_floats(model: Seq2SeqTransformer) -> None:
    """Raise a `ValueError` if some layers of a model are quantised."""
    if found := quantized_layers(model):
        name, layer = next(iter(found.items()))
        raise ArgumentError(
            "A quantised model cannot be copied, folded, pruned or exported: its weights are "
            "whole numbers, and its activations are rounded, too.",
            "weights of floats",
            "Do it with the model as it was, and quantise last. An export has whole numbers of "
            'its own: keras_addnorm.serving.export_saved_model(..., storage="int8").',
            received=f"{len(found)} quantised layers, among them {name!r} in "
            f"{layer.quantization_mode}",
        )


def _require_nothing_left(values: dict[str, Any], new: Seq2SeqTransformer) -> None:
    """Refuse weights without a place in layers that are still there, but for what was folded."""
    layers = {weight.path.rpartition("/")[0] for weight in new.weights}
    left = [
        path for path in values if path.rpartition("/")[0] in layers and not path.endswith(_FOLDED)
    ]
    if left:
        raise ArgumentError(
            "The model has weights that one of its config does not have.",
            "those of a Seq2SeqTransformer, with LoRA or without",
            received=f"besides: {', '.join(left[:4])}",
        )
