"""Residual schemes: what "Add & Norm" computes, as objects with a name.

```python
from keras_addnorm import schemes

schemes.names()  # ('post_ln', 'pre_ln', ...)
schemes.get("deep_norm")  # DeepNorm(alpha=None, beta=None)
schemes.get({"name": "rezero", "initial_value": 0.1})
```
"""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_addnorm.schemes.admin import Admin
from keras_addnorm.schemes.deep_norm import DeepNorm
from keras_addnorm.schemes.layer_scale import LayerScale
from keras_addnorm.schemes.ln_scaling import LNScaling
from keras_addnorm.schemes.mix_ln import MixLN
from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.no_residual import NoResidual
from keras_addnorm.schemes.plain import Plain
from keras_addnorm.schemes.post_ln import PostLN
from keras_addnorm.schemes.pre_ln import PreLN
from keras_addnorm.schemes.res_post_norm import ResPostNorm
from keras_addnorm.schemes.rezero import ReZero
from keras_addnorm.schemes.sandwich_ln import SandwichLN
from keras_addnorm.schemes.scheme import (
    ExtraLayer,
    Folding,
    LearnedScale,
    ResidualParts,
    ResidualPlan,
    ResidualScheme,
    StackPosition,
)
from keras_addnorm.schemes.sub_ln import SubLN

__all__ = [
    "Admin",
    "DeepNorm",
    "ExtraLayer",
    "Folding",
    "LNScaling",
    "LayerScale",
    "LearnedScale",
    "MixLN",
    "NoNorm",
    "NoResidual",
    "Plain",
    "PostLN",
    "PreLN",
    "ReZero",
    "ResPostNorm",
    "ResidualParts",
    "ResidualPlan",
    "ResidualScheme",
    "SandwichLN",
    "StackPosition",
    "SubLN",
    "get",
    "names",
    "register",
    "serialize",
]

_SCHEMES: dict[str, type[ResidualScheme]] = {
    "post_ln": PostLN,
    "pre_ln": PreLN,
    "sandwich_ln": SandwichLN,
    "peri_ln": SandwichLN,
    "res_post_norm": ResPostNorm,
    "sub_ln": SubLN,
    "mix_ln": MixLN,
    "ln_scaling": LNScaling,
    "deep_norm": DeepNorm,
    "admin": Admin,
    "rezero": ReZero,
    "layer_scale": LayerScale,
    "no_norm": NoNorm,
    "no_residual": NoResidual,
    "plain": Plain,
}


def names() -> tuple[str, ...]:
    """Return the names that `get` knows."""
    return tuple(_SCHEMES)


def register(name: str, scheme: type[ResidualScheme]) -> None:
    """Add a scheme of your own to the table, so that models that use it can be saved and loaded.

    Args:
        name: The name it is found by.
        scheme: The class, a frozen dataclass.

    Raises:
        ValueError: If the name is taken by another class, or the class is no frozen dataclass.
    """
    if _SCHEMES.get(name, scheme) is not scheme:
        raise ValueError(
            f"The scheme name '{name}' is taken by {_SCHEMES[name].__name__}. "
            f"Expected a free name. Received: {name!r} for {scheme.__name__}."
        )
    if not (dataclasses.is_dataclass(scheme) and scheme.__dataclass_params__.frozen):
        raise ValueError(
            "A residual scheme has to be a frozen dataclass, because models compare and save it. "
            f"Received: {scheme!r}. Decorate it with @dataclasses.dataclass(frozen=True)."
        )
    _SCHEMES[name] = scheme


def get(identifier: str | dict[str, Any] | ResidualScheme) -> ResidualScheme:
    """Return a scheme by name, from its config, or as it is.

    Args:
        identifier: A name such as `"pre_ln"`, a dict with the name and the scheme's own fields
            (`{"name": "layer_scale", "initial_value": 1e-5}`), or an instance.

    Returns:
        The scheme.

    Raises:
        ValueError: If the name or a field is unknown.
    """
    if isinstance(identifier, ResidualScheme):
        return identifier
    fields = dict(identifier) if isinstance(identifier, dict) else {"name": identifier}
    name = fields.pop("name", None)
    if not isinstance(name, str) or name not in _SCHEMES:
        raise ValueError(
            f"There is no such residual scheme. Expected one of {', '.join(_SCHEMES)}, a dict "
            f"with a 'name' among them, or a ResidualScheme. Received: {identifier!r}"
        )
    known = [field.name for field in dataclasses.fields(_SCHEMES[name])]  # type: ignore[arg-type]
    if unknown := sorted(set(fields) - set(known)):
        raise ValueError(
            f"The residual scheme '{name}' has no such field. Expected fields among {known}. "
            f"Received: {unknown}"
        )
    return _SCHEMES[name](**fields)


def serialize(scheme: ResidualScheme) -> dict[str, Any]:
    """Return the config that `get` turns back into an equal scheme.

    Args:
        scheme: The scheme.

    Returns:
        A dict of plain values.

    Raises:
        ValueError: If the scheme's class is not in the table.
    """
    for name, known in _SCHEMES.items():
        if type(scheme) is known:
            return {"name": name, **dataclasses.asdict(scheme)}  # type: ignore[call-overload]
    raise ValueError(
        "This residual scheme cannot be saved, because its class is not in the table. "
        f"Received: {scheme!r}. Call keras_addnorm.schemes.register('a_name', "
        f"{type(scheme).__name__}) first, here and where the model is loaded."
    )
