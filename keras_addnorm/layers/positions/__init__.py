"""Positions: how a model knows the order of its tokens, as objects with a name.

*Absolute* kinds are vectors that the embedding adds; *relative* kinds act in self-attention, by the
distance of a query and a key. Embedding and attention are given the same choice, and each takes
from it what is its own.

```python
from keras_addnorm.layers import positions

positions.names()  # ('none', 'sinusoidal', 'learned', 'rotary', 'alibi', 't5', 'shaw')
positions.relative({"name": "rotary", "base": 500.0})  # a layer that rotates queries and keys
positions.relative("sinusoidal")  # None: nothing to do in attention
```
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, TypeAlias

import keras

from keras_addnorm.basics import Table
from keras_addnorm.layers.positions.absolute import LearnedPositions, SinusoidalPositions, Sinusoids
from keras_addnorm.layers.positions.alibi import AlibiPositions, alibi_slopes
from keras_addnorm.layers.positions.relative import RelativePositions
from keras_addnorm.layers.positions.rotary import RotaryPositions
from keras_addnorm.layers.positions.shaw import ShawPositions, shaw_index
from keras_addnorm.layers.positions.t5 import T5Positions, t5_buckets

__all__ = [
    "AlibiPositions",
    "LearnedPositions",
    "PositionsLike",
    "RelativePositions",
    "RotaryPositions",
    "ShawPositions",
    "SinusoidalPositions",
    "T5Positions",
    "absolute",
    "alibi_slopes",
    "check_width",
    "is_learned",
    "names",
    "register",
    "relative",
    "serialize",
    "shaw_index",
    "t5_buckets",
]

PositionsLike: TypeAlias = "str | dict[str, Any] | RelativePositions"

_ABSOLUTE = (SinusoidalPositions, LearnedPositions)


def _own_fields(kind: type[Any]) -> Iterable[str]:
    if kind is SinusoidalPositions:
        return [field.name for field in dataclasses.fields(Sinusoids)]
    return kind(name="fields").fields() if issubclass(kind, RelativePositions) else ()


_TABLE: Table[Any] = Table(
    "kind of positions",
    RelativePositions,
    {
        "none": NoneType,
        "sinusoidal": SinusoidalPositions,
        "learned": LearnedPositions,
        "rotary": RotaryPositions,
        "alibi": AlibiPositions,
        "t5": T5Positions,
        "shaw": ShawPositions,
    },
    fields=_own_fields,
    module="keras_addnorm.layers.positions",
)
names = _TABLE.names
register = _TABLE.register


def absolute(identifier: PositionsLike) -> Callable[..., keras.layers.Layer] | None:
    """Return what the embedding makes of a choice of positions.

    Args:
        identifier: A name, or a dict with a name and the kind's own fields.

    Returns:
        A callable that takes `hidden_dim`, `max_length` and Keras' layer arguments and returns a
        layer from positions `(T,)` to vectors `(T, D)`; `None` if nothing is added.

    Raises:
        ValueError: If the name or a field is unknown.
    """
    kind, fields = _TABLE.read(identifier)
    return functools.partial(kind, **fields) if issubclass(kind, _ABSOLUTE) else None


def is_learned(identifier: Any) -> bool:
    """Return whether a choice is that of learned positions, which end at `max_length`.

    Args:
        identifier: What a config has as its positions.

    Returns:
        Whether it is; of an unknown choice, it is not.
    """
    name = identifier.get("name") if isinstance(identifier, dict) else identifier
    return isinstance(name, str) and name == "learned"


def check_width(identifier: PositionsLike, hidden_dim: int) -> None:
    """Check the fields of absolute positions, and whether there is such a width.

    Args:
        identifier: What `absolute` takes.
        hidden_dim: Number of channels, D.

    Raises:
        ValueError: If a field or the width does not fit.
    """
    if isinstance(identifier, RelativePositions):
        return
    kind, fields = _TABLE.read(identifier)
    if kind is SinusoidalPositions:
        Sinusoids(**fields).check_width(hidden_dim)


def relative(identifier: PositionsLike, **kwargs: Any) -> RelativePositions | None:
    """Return what self-attention makes of a choice of positions.

    Args:
        identifier: A name, a dict with a name and the kind's own fields, or a layer, which is
            returned as it is.
        **kwargs: Keras' layer arguments for a new layer.

    Returns:
        The layer, or `None` if there is nothing to do in attention.

    Raises:
        ValueError: If the name or a field is unknown or does not fit.
    """
    if isinstance(identifier, RelativePositions):
        return identifier
    kind, fields = _TABLE.read(identifier)
    return kind(**fields, **kwargs) if issubclass(kind, RelativePositions) else None


def serialize(identifier: PositionsLike) -> str | dict[str, Any]:
    """Return the choice as plain values: a name or a dict."""
    if not isinstance(identifier, RelativePositions):
        return identifier if isinstance(identifier, str) else dict(identifier)
    return {"name": _TABLE.name_of(identifier), **identifier.fields()}
