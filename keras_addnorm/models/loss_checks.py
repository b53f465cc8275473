"""Losses that take probabilities, which a model of logits cannot be trained with."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import keras

from keras_addnorm.basics.errors import ArgumentError


def require_loss_of_logits(loss: Any) -> None:
    """Raise a `ValueError` if a loss takes probabilities: of logits it is a number without sense.

    Args:
        loss: What `compile` takes: the name of a loss, a function, an object, or several of them.

    Raises:
        ValueError: If its `from_logits` is False, as it is unless one says otherwise.
    """
    for one in keras.tree.flatten(loss):
        if _takes_probabilities(one):
            name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
            raise ArgumentError(
                "The model gives logits, and this loss takes probabilities.",
                "MaskedSparseCategoricalCrossentropy of keras_addnorm.training, which leaves "
                "padding out, or a loss with from_logits=True",
                value=name,
            )


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
