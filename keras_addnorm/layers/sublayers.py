"""Finds the sublayers of a model, and names them by side, layer and kind."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import keras

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.layers.add_norm import AddNorm


def named_add_norms(model: Any) -> dict[str, AddNorm]:
    """Find every `AddNorm` of a model, under the names that reports and `prune` use.

    Inside a stack the name says side, layer and sublayer: `"encoder/0/self_attention"`. A layer
    without a position goes by its own name: `"transformer_encoder_layer/self_attention"`. Where
    that is not unique (a model with two encoders), the names of the layers above are used too.

    Args:
        model: A built Keras layer or model.

    Returns:
        The layers by name, in the model's order.

    Raises:
        ValueError: If there is none.

    Example:
        >>> from keras_addnorm.layers import TransformerEncoder
        >>> encoder = TransformerEncoder(num_layers=1, num_heads=2, intermediate_dim=32)
        >>> encoder.build((2, 5, 8))
        >>> list(named_add_norms(encoder))
        ['encoder/0/self_attention', 'encoder/0/feed_forward']
    """
    return {name: place.add_norm for name, place in named_sublayers(model).items()}


@dataclasses.dataclass(frozen=True)
class Sublayer:
    """A sublayer and the Add & Norm around it.

    Attributes:
        add_norm: The Add & Norm.
        layer: The attention or feed-forward layer that the same Transformer layer holds for it;
            `None` where that is not known, as for an `AddNorm` in a model of your own.
    """

    add_norm: AddNorm
    layer: keras.layers.Layer | None


def named_sublayers(model: Any) -> dict[str, Sublayer]:
    """Find every sublayer of a model, under the names that reports and `prune` use.

    Args:
        model: A built Keras layer or model.

    Returns:
        The sublayers by name, in the model's order.

    Raises:
        ValueError: If there is none.
    """
    found = list(_walk(model, ()))
    if not found:
        raise ArgumentError(
            "There is no Add & Norm.",
            "a built model with an AddNorm layer inside",
            "If it is not built yet, call it once on a batch first.",
            value=model,
        )
    short = Counter(_short_name(path) for path in found)
    named: dict[str, Sublayer] = {}
    for path in found:
        name = _short_name(path)
        if short[name] > 1:
            name = "/".join([*(layer.name for layer in path[1:-1]), _sublayer(path[-1])])
        unique, count = name, 1
        while unique in named:
            unique, count = f"{name}_{count}", count + 1
        named[unique] = Sublayer(path[-1], _neighbour(path))
    return named


Path = tuple[keras.layers.Layer, ...]


def _walk(layer: Any, above: Path, seen: set[int] | None = None) -> Iterator[Path]:
    """Yield the path from the model to each `AddNorm`, once for each `AddNorm`."""
    seen = set() if seen is None else seen
    if id(layer) in seen:
        return
    seen.add(id(layer))
    path = (*above, layer)
    if isinstance(layer, AddNorm):
        yield path
        return
    for child in getattr(layer, "_layers", ()):
        yield from _walk(child, path, seen)


def _short_name(path: Path) -> str:
    add_norm = path[-1]
    position = add_norm.position
    if position is not None:
        return f"{position.side}/{position.layer_index}/{_sublayer(add_norm)}"
    is_in_layer = len(path) > 1 and add_norm.name != _sublayer(add_norm)
    return f"{path[-2].name}/{_sublayer(add_norm)}" if is_in_layer else add_norm.name


def _sublayer(add_norm: AddNorm) -> str:
    """`"self_attention"` for the layer called `"self_attention_add_norm"`."""
    position = add_norm.position
    if position is not None and position.sublayer is not None:
        return position.sublayer
    return add_norm.name.removesuffix("_add_norm")


def _neighbour(path: Path) -> keras.layers.Layer | None:
    if len(path) < 2 or not path[-1].name.endswith("_add_norm"):
        return None
    layer = getattr(path[-2], path[-1].name.removesuffix("_add_norm"), None)
    return layer if isinstance(layer, keras.layers.Layer) else None
