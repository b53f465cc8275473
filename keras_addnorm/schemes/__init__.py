"""Residual schemes: what "Add & Norm" computes, as objects with a name.

```python
from keras_addnorm import schemes

schemes.names()  # ('post_ln', 'pre_ln', ...)
schemes.get("deep_norm")  # DeepNorm(alpha=None, beta=None)
schemes.get({"name": "rezero", "initial_value": 0.1})
```
"""

from __future__ import annotations

from keras_addnorm.basics import Table
from keras_addnorm.schemes.admin import Admin
from keras_addnorm.schemes.deep_norm import DeepNorm
from keras_addnorm.schemes.ds_init import DSInit
from keras_addnorm.schemes.hybrid_norm import HybridNorm
from keras_addnorm.schemes.keel import Keel
from keras_addnorm.schemes.layer_scale import LayerScale
from keras_addnorm.schemes.ln_scaling import LNScaling
from keras_addnorm.schemes.mix_ln import MixLN
from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.no_residual import NoResidual
from keras_addnorm.schemes.orthogonal import Orthogonal
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
from keras_addnorm.schemes.t_fixup import TFixup

__all__ = [
    "Admin",
    "DSInit",
    "DeepNorm",
    "ExtraLayer",
    "Folding",
    "HybridNorm",
    "Keel",
    "LNScaling",
    "LayerScale",
    "LearnedScale",
    "MixLN",
    "NoNorm",
    "NoResidual",
    "Orthogonal",
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
    "TFixup",
    "get",
    "names",
    "register",
    "serialize",
]

_TABLE: Table[ResidualScheme] = Table(
    "residual scheme",
    ResidualScheme,  # type: ignore[type-abstract]
    {
        "post_ln": PostLN,
        "pre_ln": PreLN,
        "sandwich_ln": SandwichLN,
        "peri_ln": SandwichLN,
        "res_post_norm": ResPostNorm,
        "sub_ln": SubLN,
        "mix_ln": MixLN,
        "ln_scaling": LNScaling,
        "hybrid_norm": HybridNorm,
        "deep_norm": DeepNorm,
        "ds_init": DSInit,
        "keel": Keel,
        "admin": Admin,
        "rezero": ReZero,
        "t_fixup": TFixup,
        "layer_scale": LayerScale,
        "orthogonal": Orthogonal,
        "no_norm": NoNorm,
        "no_residual": NoResidual,
        "plain": Plain,
    },
    module="keras_addnorm.schemes",
)
names = _TABLE.names
register = _TABLE.register
get = _TABLE.get
serialize = _TABLE.serialize
