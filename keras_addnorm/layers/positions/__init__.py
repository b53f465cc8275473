"""Positions: how a model knows the order of its tokens, as objects with a name.

*Absolute* kinds are vectors that the embedding adds; *relative* kinds act in self-attention, by the
distance of a query and a key. Embedding and attention are given the same choice, and each takes
from it what is its own.

```python
from keras_addnorm.layers import positions

positions.names()  # ('none', 'sinusoidal', 'learned', 'rotary', 'alibi', 't5', 'shaw')
positions.relative({"name": "rotary", "base": 500.0})  # a layer that turns queries and keys
positions.relative("sinusoidal")  # None: nothing to do in attention
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import keras

from keras_addnorm.layers.positions.absolute import LearnedPositions, SinusoidalPositions
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
    "names",
    "relative",
    "serialize",
    "shaw_index",
    "t5_buckets",
]

PositionsLike: TypeAlias = "str | dict[str, Any] | RelativePositions"

_NOTHING = "none"
_ABSOLUTE: dict[str, type[keras.layers.Layer]] = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
}
_RELATIVE: dict[str, type[RelativePositions]] = {
    "rotary": RotaryPositions,
    "alibi": AlibiPositions,
    "t5": T5Positions,
    "shaw": ShawPositions,
}


def names() -> tuple[str, ...]:
    """Return the names of all kinds."""
    return (_NOTHING, *_ABSOLUTE, *_RELATIVE)


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
    return _ABSOLUTE.get(_read(identifier)[0])


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
    name, fields = _read(identifier)
    return _RELATIVE[name](**fields, **kwargs) if name in _RELATIVE else None


def serialize(identifier: PositionsLike) -> str | dict[str, Any]:
    """Return the choice as plain values.

    Args:
        identifier: What `relative` takes.

    Returns:
        A name or a dict.
    """
    if not isinstance(identifier, RelativePositions):
        return identifier if isinstance(identifier, str) else dict(identifier)
    name = next(name for name, kind in _RELATIVE.items() if type(identifier) is kind)
    return {"name": name, **identifier.fields()}


def _read(identifier: PositionsLike) -> tuple[str, dict[str, Any]]:
    fields = dict(identifier) if isinstance(identifier, dict) else {"name": identifier}
    name = fields.pop("name", None)
    if not isinstance(name, str) or name not in names():
        raise ValueError(
            f"There is no such kind of positions. Expected one of {', '.join(names())}, or a dict "
            f"with a 'name' among them. Received: {identifier!r}"
        )
    known = _fields_of(name)
    if unknown := sorted(set(fields) - set(known)):
        raise ValueError(
            f"The positions '{name}' have no such field. Expected fields among {list(known)}. "
            f"Received: {unknown}"
        )
    return name, fields


def _fields_of(name: str) -> tuple[str, ...]:
    return tuple(_RELATIVE[name](name=name).fields()) if name in _RELATIVE else ()
