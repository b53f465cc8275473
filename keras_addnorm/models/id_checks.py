"""Token ids from outside, looked at before a model computes: a compiled graph cannot refuse them.

What is looked at costs next to nothing: arrays and eager tensors, once, and what a data set of ours
says of itself. Data sets of others are not read for it: the embedding gives NaN for a wrong id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.arrays import values_of
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.decoding.checks import check_ids, check_length, check_padding, id_array
from keras_addnorm.models.config import Seq2SeqConfig

__all__ = ["check_data", "check_ids", "check_inputs", "id_array", "narrowed"]

_SIDES = ("source", "target")


def check_inputs(inputs: Any, config: Seq2SeqConfig) -> None:
    """Raise a `ValueError` if ids that can be looked at are none that the model can read.

    Args:
        inputs: What a model is called with: ids by the side that they are of, or both in a row.
        config: The model's config.

    Raises:
        ValueError: If an id is negative, fractional or too large, or if padding stands before or
            between the tokens of a row.
    """
    if isinstance(inputs, list | tuple) and len(inputs) == len(_SIDES):
        inputs = dict(zip(_SIDES, inputs, strict=True))
    if not isinstance(inputs, Mapping):
        return
    for side in _SIDES:
        values = values_of(inputs.get(side))
        if values is not None:
            check_ids(side, _whole(side, values), getattr(config, f"{side}_vocabulary_size"))
            # The start token may be padding, too.
            is_start = side == "target" and config.start_id == config.pad_id
            check_padding(side, values, config.pad_id, num_real=int(is_start))


def check_data(x: Any, y: Any, config: Seq2SeqConfig, loss: Any = None) -> None:
    """Check what a model is trained or evaluated on, as far as that costs nothing.

    Args:
        x: Inputs as arrays, or a data set.
        y: Labels, if inputs are arrays.
        config: The model's config.
        loss: What the model was compiled with; labels are looked at if it has a `pad_id`.

    Raises:
        ValueError: If an id is negative, fractional or too large, if padding stands before or
            between the tokens of a row, or if rows are longer than a table of positions.
    """
    # A data set of `keras_addnorm.data` says how large its ids are, and how long its rows.
    data = getattr(x, "epochs", x)
    largest = getattr(data, "largest_ids", None) or {}
    for side, found in largest.items():
        size = getattr(config, f"{side}_vocabulary_size")
        if found >= size:
            raise ArgumentError(
                "The data set does not belong to the model.",
                f"{side} ids below {size}, the size of its vocabulary",
                "Make it with the model's own tokenizer.",
                received=f"ids up to {found}",
            )
    check_length("data set's", getattr(data, "longest_row", 0), config.num_positions)
    check_inputs(x, config)
    labels = values_of(y) if hasattr(loss, "pad_id") else None
    if labels is not None and labels.dtype.kind in "iu":
        check_ids("label", labels[labels != loss.pad_id], config.target_vocabulary_size)


def narrowed(inputs: Any) -> Any:
    """Return ids as the int32 that Keras makes of them; what int32 cannot hold becomes -1."""
    return keras.tree.map_structure(_narrowed, inputs)


def _narrowed(ids: Any) -> Any:
    # Not a symbolic tensor, which `is_tensor` does not take for one.
    dtype = ops.dtype(ids) if ops.is_tensor(ids) else "int32"
    if dtype not in ("int64", "uint32", "uint64") and "float" not in dtype:
        return ids
    fits = ops.logical_and(ops.greater_equal(ids, 0), ops.less_equal(ids, 2**31 - 1))
    if "float" in dtype:
        fits = ops.logical_and(fits, ops.equal(ids, ops.floor(ids)))
    return ops.where(fits, ops.cast(ids, "int32"), -1)


def _whole(side: str, values: np.ndarray) -> np.ndarray:
    """Return ids as integers; Keras would cut fractions off."""
    if values.dtype.kind != "f":
        return values
    fractional = values[values != np.floor(values)] if values.size else values
    if fractional.size or not np.isfinite(values).all():
        raise ArgumentError(
            f"A {side} id is no whole number.",
            "a dtype such as int32",
            received=str(fractional.ravel()[:4].tolist() or "infinity"),
        )
    return values.astype("int64")
