"""Rebuilds a model from a changed config, with the weights of the given one."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_addnorm.basics.arrays import to_numpy
from keras_addnorm.models.seq2seq import Seq2SeqTransformer


def rebuild(model: Seq2SeqTransformer, **changes: Any) -> Seq2SeqTransformer:
    """Build a model with some fields of the config changed, and copy the weights to it.

    Args:
        model: The model to copy, which does not change.
        **changes: Fields of the config, such that the new model has no weights that `model` lacks.

    Returns:
        A new model of the same precision, not compiled.
    """
    config = dataclasses.replace(model.config, **changes)
    new = type(model)(config, dtype=model.decoder.dtype_policy, name=model.name)
    weights = {weight.path: weight for weight in model.weights}
    for weight in new.weights:
        weight.assign(to_numpy(weights[weight.path]))
    return new
