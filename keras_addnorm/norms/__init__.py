"""Normalisations by name: what the "Norm" of "Add & Norm" computes.

```python
from keras_addnorm import norms

norms.names()  # ('layer_norm', 'rms_norm', ...)
norms.get("rms_norm")(epsilon=1e-6)  # an unbuilt Keras layer
norms.get({"name": "dynamic_tanh", "initial_alpha": 0.8})()
```
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from keras_addnorm.basics import Table
from keras_addnorm.basics.errors import ArgumentError

if TYPE_CHECKING:
    from keras_addnorm.norms.norm import Norm

NormLike = str | dict[str, Any]
"""A name, a dict of the name and the norm's own fields, or one of these for each side."""

NormFactory = Callable[..., "Norm"]
"""Takes `epsilon` and Keras' layer keywords (`name`, `dtype`), returns an unbuilt layer."""

Side = Literal["encoder", "decoder"]

_TABLE: Table[Norm] = Table(
    "norm",
    "norm:Norm",
    {
        "layer_norm": "layer_norm:LayerNorm",
        "rms_norm": "rms_norm:RMSNorm",
        "scale_norm": "scale_norm:ScaleNorm",
        "seed_norm": "seed_norm:SeedNorm",
        "dynamic_tanh": "dynamic_tanh:DynamicTanh",
        "derf": "derf:Derf",
        "bhyt": "bhyt:BHyT",
        "taper_norm": "taper_norm:TaperNorm",
        "std_layer_norm": "std_layer_norm:StdLayerNorm",
        "batch_norm": "batch_norm:BatchNorm",
        "none": "none:NoNorm",
    },
    takes_instances=False,
    module="keras_addnorm.norms",
)
names = _TABLE.names
register = _TABLE.register
load = _TABLE.load

__all__ = [
    "Norm",
    "NormFactory",
    "NormLike",
    "Side",
    "for_side",
    "get",
    "is_scale_invariant",
    "mixes_positions",
    "names",
    "register",
    *_TABLE.classes(),
]


def __getattr__(name: str) -> Any:
    """Import a norm's class when it is first used."""
    return _TABLE.class_of_module(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def get(identifier: NormLike) -> NormFactory:
    """Return the factory of a norm.

    Args:
        identifier: One of `names()`, or a dict with the name and the norm's own fields
            (`{"name": "batch_norm", "momentum": 0.9}`). An epsilon among them goes before the one
            that the factory is given.

    Returns:
        A callable that makes the Keras layer: `get("rms_norm")(epsilon=1e-6)`.

    Raises:
        ValueError: If the name or a field is unknown.
    """
    norm, fields = _TABLE.read(identifier)
    return functools.partial(_make, norm, fields)


def for_side(identifier: NormLike, side: Side) -> NormLike:
    """Return the norm of one side of a model, after a look at whether it may stand there.

    Args:
        identifier: What `get` takes, or a dict of such: `{"encoder": ..., "decoder": ...}`.
        side: `"encoder"` or `"decoder"`.

    Returns:
        What `get` takes.

    Raises:
        ValueError: If the norm is unknown, or if it is one for encoders and the side is the
            decoder.
    """
    if isinstance(identifier, dict) and identifier.keys() == {"encoder", "decoder"}:
        identifier = identifier[side]
    if mixes_positions(identifier) and side == "decoder":
        raise ArgumentError(
            "This norm leaks in a decoder: while training, its statistics are taken over all "
            "positions, so each position would see the tokens that it has to predict, and not see "
            "them when the model translates.",
            "a norm that takes each position by itself",
            f"Use it in the encoder alone: norm={{'encoder': {identifier!r}, 'decoder': "
            "'layer_norm'}.",
            value=identifier,
        )
    return identifier


def mixes_positions(identifier: NormLike) -> bool:
    """Tell whether what a norm gives at one position depends on others.

    Args:
        identifier: What `get` takes.

    Returns:
        Whether it does: such a norm must not stand in a decoder.

    Raises:
        ValueError: If the name or a field is unknown.
    """
    norm, _ = _TABLE.read(identifier)
    return norm.mixes_positions


def is_scale_invariant(identifier: NormLike) -> bool:
    """Tell whether a factor on its input changes nothing but the part of epsilon.

    Args:
        identifier: What `get` takes.

    Returns:
        Whether it does not.

    Raises:
        ValueError: If the name or a field is unknown.
    """
    norm, _ = _TABLE.read(identifier)
    return bool(norm.epsilon_power)


def _make(norm: type[Norm], fields: dict[str, Any], **arguments: Any) -> Norm:
    return norm(**{**arguments, **fields})
