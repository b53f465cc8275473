"""What a model is given: token ids, a loss, tokenizers; and whether its weights are numbers.

A compiled graph cannot refuse ids. What is looked at before costs next to nothing: arrays and eager
tensors, once, and what a data set of ours says of itself. Data sets of others are not read for it:
the embedding gives NaN for a wrong id.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any, Protocol

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.errors import ERRORS_OF_CONFIGS, ArgumentError
from keras_addnorm.basics.tensors import not_finite, values_of
from keras_addnorm.decoding.checks import check_ids, check_length, check_padding, id_array
from keras_addnorm.models.config import Seq2SeqConfig


class _Tokenizer(Protocol):
    pad_id: int
    start_id: int
    end_id: int

    @property
    def vocabulary_size(self) -> int: ...


class _Tokenizers(Protocol):
    @property
    def source(self) -> _Tokenizer: ...

    @property
    def target(self) -> _Tokenizer: ...


def require_finite(model: keras.Model) -> None:
    """Raise a `ValueError` if weights of a model are no numbers, before others get it."""
    if found := not_finite(model.weights):
        raise ArgumentError(
            "The model has weights that are NaN or infinite, and would translate nothing.",
            "finite numbers",
            "Load the last good checkpoint.",
            received=f"such in {len(found)} of {len(model.weights)} weights: "
            f"{', '.join(found[:4])}{', ...' if len(found) > 4 else ''}",
        )


def require_vocabularies(config: Seq2SeqConfig, tokenizers: _Tokenizers) -> None:
    """Raise a `ValueError` unless tokenizers have as many pieces as a model."""
    for side, tokenizer, expected in (
        ("source", tokenizers.source, config.source_vocabulary_size),
        ("target", tokenizers.target, config.target_vocabulary_size),
    ):
        if tokenizer.vocabulary_size != expected:
            raise ArgumentError(
                "The tokenizer does not belong to the model.",
                f"a {side} vocabulary of {expected} pieces",
                "Pass the tokenizer that the model was trained with. If its table has more rows "
                "than there are pieces, fill the ids up: PieceIds.filled_up_to(rows).",
                value=tokenizer.vocabulary_size,
            )


def require_tokenizers(config: Seq2SeqConfig, tokenizers: _Tokenizers) -> None:
    """Raise a `ValueError` unless tokenizers have a model's vocabulary sizes and special ids."""
    require_vocabularies(config, tokenizers)
    for tokenizer in (tokenizers.source, tokenizers.target):
        ids = (config.pad_id, config.start_id, config.end_id)
        own = (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id)
        if ids != own:
            raise ArgumentError(
                "The model has other special ids than the tokenizer: expected pad, start and end "
                f"{own}.",
                remedy="Leave them at their defaults in Seq2SeqConfig.",
                received=str(ids),
            )


__all__ = ["check_data", "check_ids", "check_inputs", "check_names", "id_array", "narrowed"]

_SIDES = ("source", "target")


def check_names(inputs: Any) -> None:
    """Raise a `ValueError` if the two inputs of a model come without their names."""
    named = isinstance(inputs, Mapping)
    if isinstance(inputs, list | tuple) or (named and {*_SIDES} - {*inputs}):
        raise ArgumentError(
            "The model takes its inputs by their names.",
            '{"source": ids, "target": ids}, each (batch, length)',
            received=f"a dict of {[*inputs]}" if named else f"a {type(inputs).__name__}",
        )


def check_inputs(inputs: Any, config: Seq2SeqConfig) -> None:
    """Raise a `ValueError` if ids that can be looked at are none that the model can read.

    That is: negative, fractional or too large, or padding before or between the tokens of a row.
    """
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
    check_names(x)
    check_inputs(x, config)
    labels = values_of(y) if hasattr(loss, "pad_id") else None
    if labels is not None and labels.dtype.kind in "iu":
        check_ids("label", labels[labels != loss.pad_id], config.target_vocabulary_size)


def narrowed(inputs: Any) -> Any:
    """Return ids as the int32 that Keras makes of them; what int32 cannot hold becomes -1."""
    if isinstance(inputs, Mapping):  # Beside the ids there may be weights of an alignment.
        return {
            name: _narrowed(value) if name in _SIDES else value for name, value in inputs.items()
        }
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


def require_cross_attention(config: Seq2SeqConfig) -> None:
    """Raise a `ValueError` if the last decoder layer looks at no source."""
    name = f"decoder/{config.num_decoder_layers - 1}/cross_attention"
    if name in config.pruned_sublayers:
        raise ArgumentError(
            "Guided alignment teaches the cross-attention of the last decoder layer.",
            "a model that has one",
            received=f"{name!r} among `pruned_sublayers`",
        )


def require_same_vocabularies(student: Seq2SeqConfig, teacher: Any) -> None:
    """Raise a `ValueError` if a teacher that says it has other vocabularies or special ids."""
    config = getattr(teacher, "config", None)
    if not isinstance(config, Seq2SeqConfig):
        return
    names = ("source_vocabulary_size", "target_vocabulary_size", "pad_id", "start_id", "end_id")
    other = [name for name in names if getattr(student, name) != getattr(config, name)]
    if other:
        raise ArgumentError(
            "Teacher and student need the same vocabularies, token by token.",
            ", ".join(f"{name} {getattr(student, name)}" for name in other),
            "A teacher of another vocabulary can teach by its translations.",
            received=", ".join(f"{name} {getattr(config, name)}" for name in other),
        )


def require_additional_loss(attribute: str = "__call__", **argument: Any) -> None:
    """Raise a `ValueError` unless what is added to the loss can be called, and has an attribute."""
    classes = {"guided_alignment": "GuidedAlignment", "distillation": "TokenDistillation"}
    for name, value in argument.items():
        if not callable(value) or not hasattr(value, attribute):
            raise ArgumentError(
                f"`{name}` is added to the loss.",
                f"a {classes[name]} of keras_addnorm.training, or None",
                **{name: value},
            )


def get_optimizer(optimizer: Any) -> keras.optimizers.Optimizer | None:
    """Return the optimiser that Keras makes of a value, `None` of `None`; else a `ValueError`."""
    try:
        found: Any = keras.optimizers.get(optimizer)
    except ERRORS_OF_CONFIGS:
        found = False
    if found is not None and not isinstance(found, keras.optimizers.Optimizer):
        raise ArgumentError(
            "`optimizer` is none.",
            "the name of one of Keras (adam, adafactor, ...), its dict, or an object such as "
            "keras_addnorm.training.Adam()",
            optimizer=optimizer,
        )
    return found


def require_loss_of_logits(loss: Any) -> None:
    """Raise a `ValueError` if a loss is none, or takes probabilities, which logits are not."""
    for one in keras.tree.flatten(loss):
        if not _is_a_loss(one):
            raise ArgumentError(
                "`loss` is none.",
                "MaskedSparseCategoricalCrossentropy of keras_addnorm.training, the name of one "
                "of Keras, or a function",
                loss=one,
            )
        if _takes_probabilities(one):
            name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
            raise ArgumentError(
                "The model gives logits, and this loss takes probabilities.",
                "MaskedSparseCategoricalCrossentropy of keras_addnorm.training, which leaves "
                "padding out, or a loss with from_logits=True",
                value=name,
            )


def _is_a_loss(loss: Any) -> bool:
    if not isinstance(loss, str):
        return loss is None or callable(loss)
    try:
        return loss.lower() in _CHOSEN_BY_SHAPE or callable(keras.losses.get(loss))
    except (ValueError, TypeError):
        return False


def _takes_probabilities(loss: Any) -> bool:
    if isinstance(loss, str):
        if loss.lower() in _CHOSEN_BY_SHAPE:
            return True
        loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss):
        return getattr(loss, "from_logits", None) is False
    given = loss.keywords if isinstance(loss, functools.partial) else {}
    function = loss.func if isinstance(loss, functools.partial) else loss
    if getattr(function, "__module__", None) != _KERAS_FUNCTIONS:
        return False
    default = inspect.signature(function).parameters.get("from_logits")
    return default is not None and not given.get("from_logits", default.default)


_CHOSEN_BY_SHAPE = ("crossentropy", "ce")
"""Names that Keras takes for one of three losses of probabilities."""
_KERAS_FUNCTIONS = keras.losses.mean_squared_error.__module__
