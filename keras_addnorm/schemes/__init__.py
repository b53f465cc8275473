"""Residual schemes: what "Add & Norm" computes, as objects with a name.

```python
from keras_addnorm import schemes

schemes.names()  # ('post_ln', 'pre_ln', ...)
schemes.get("deep_norm")  # DeepNorm(alpha=None, beta=None)
schemes.get({"name": "rezero", "initial_value": 0.1})
```
"""

from __future__ import annotations

from typing import Any

from keras_addnorm.basics import Table
from keras_addnorm.schemes.plan import (
    ExtraLayer,
    LearnedArray,
    LearnedScale,
    ResidualParts,
    ResidualPlan,
    StackPosition,
)
from keras_addnorm.schemes.scheme import Folding, ResidualScheme, State, StreamState
from keras_addnorm.schemes.steps import Step
from keras_addnorm.schemes.streams import StreamScheme

_TABLE: Table[ResidualScheme] = Table(
    "residual scheme",
    ResidualScheme,  # type: ignore[type-abstract]
    {
        "post_ln": "post_ln:PostLN",
        "pre_ln": "pre_ln:PreLN",
        "sandwich_ln": "sandwich_ln:SandwichLN",
        "peri_ln": "sandwich_ln:SandwichLN",
        "res_post_norm": "res_post_norm:ResPostNorm",
        "sub_ln": "sub_ln:SubLN",
        "mix_ln": "mix_ln:MixLN",
        "ln_scaling": "ln_scaling:LNScaling",
        "hybrid_norm": "hybrid_norm:HybridNorm",
        "deep_norm": "deep_norm:DeepNorm",
        "ds_init": "ds_init:DSInit",
        "keel": "keel:Keel",
        "admin": "admin:Admin",
        "gpas": "gpas:GPAS",
        "rezero": "rezero:ReZero",
        "t_fixup": "t_fixup:TFixup",
        "layer_scale": "layer_scale:LayerScale",
        "orthogonal": "orthogonal:Orthogonal",
        "deep_delta": "deep_delta:DeepDelta",
        "pro_res": "pro_res:ProRes",
        "no_norm": "no_norm:NoNorm",
        "no_residual": "no_residual:NoResidual",
        "plain": "plain:Plain",
        "b2t": "b2t:B2T",
        "resi_dual": "resi_dual:ResiDual",
        "hyper_connections": "hyper_connections:HyperConnections",
        "mhc_lite": "mhc_lite:MHCLite",
        "mhc": "mhc:MHC",
        "attention_residuals": "attention_residuals:AttentionResiduals",
        "residual_scalars": "residual_scalars:ResidualScalars",
        "dense_former": "dense_former:DenseFormer",
        "frac_connections": "frac_connections:FracConnections",
        "dlcl": "dlcl:DLCL",
        "siamese_norm": "siamese_norm:SiameseNorm",
        "krom_hc": "krom_hc:KromHC",
    },
    module="keras_addnorm.schemes",
)
names = _TABLE.names
register = _TABLE.register
get = _TABLE.get
serialize = _TABLE.serialize

__all__ = [
    "ExtraLayer",
    "Folding",
    "LearnedArray",
    "LearnedScale",
    "ResidualParts",
    "ResidualPlan",
    "ResidualScheme",
    "StackPosition",
    "State",
    "Step",
    "StreamScheme",
    "StreamState",
    "get",
    "names",
    "register",
    "serialize",
    *_TABLE.classes(),
]


def __getattr__(name: str) -> Any:
    """Import a scheme's class when it is first used."""
    return _TABLE.class_of_module(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
