"""Chooses the layers of a model that LoRA or quantisation is to change."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras

from keras_addnorm.basics.errors import ArgumentError


def chosen_layers(method: str, filters: Any) -> Callable[[keras.layers.Layer], bool]:
    """Return which layers are chosen: those that have a method of their own, and fit.

    Args:
        method: `"quantize"` or `"enable_lora"`.
        filters: As `keras.Model.quantize` takes them: a regular expression of names, a list of
            them, a function of a layer, or `None` for all.

    Returns:
        The function of a layer.

    Raises:
        ValueError: If `filters` are none of these.
    """
    if isinstance(filters, str):
        filters = [filters]
    if filters is not None and not callable(filters):
        filters = _patterns(filters)
    # Every layer has a `quantize`, which says that there is none. Keras would warn of each.
    of_all = getattr(keras.layers.Layer, method, None)

    def is_chosen(layer: keras.layers.Layer) -> bool:
        if getattr(type(layer), method, of_all) is of_all:
            return False
        if filters is None or callable(filters):
            return filters is None or bool(filters(layer))
        return any(pattern.search(layer.name) for pattern in filters)

    return is_chosen


def _patterns(filters: Any) -> list[re.Pattern[str]]:
    """Return the regular expressions of a list of names."""
    try:
        return [re.compile(pattern) for pattern in filters]
    except (TypeError, re.error) as error:
        raise ArgumentError(
            "`filters` choose layers by name.",
            "a regular expression, a list of them, a function of a layer, or None",
            received=f"{filters!r:.80} ({error})",
        ) from error
