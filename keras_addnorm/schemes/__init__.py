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
from keras_addnorm.schemes.attention_residuals import AttentionResiduals
from keras_addnorm.schemes.b2t import B2T
from keras_addnorm.schemes.deep_norm import DeepNorm
from keras_addnorm.schemes.dense_former import DenseFormer
from keras_addnorm.schemes.ds_init import DSInit
from keras_addnorm.schemes.frac_connections import FracConnections
from keras_addnorm.schemes.gpas import GPAS
from keras_addnorm.schemes.hybrid_norm import HybridNorm
from keras_addnorm.schemes.hyper_connections import HyperConnections
from keras_addnorm.schemes.keel import Keel
from keras_addnorm.schemes.layer_scale import LayerScale
from keras_addnorm.schemes.ln_scaling import LNScaling
from keras_addnorm.schemes.mhc import MHC
from keras_addnorm.schemes.mhc_lite import MHCLite
from keras_addnorm.schemes.mix_ln import MixLN
from keras_addnorm.schemes.no_norm import NoNorm
from keras_addnorm.schemes.no_residual import NoResidual
from keras_addnorm.schemes.orthogonal import Orthogonal
from keras_addnorm.schemes.plain import Plain
from keras_addnorm.schemes.post_ln import PostLN
from keras_addnorm.schemes.pre_ln import PreLN
from keras_addnorm.schemes.res_post_norm import ResPostNorm
from keras_addnorm.schemes.resi_dual import ResiDual
from keras_addnorm.schemes.residual_scalars import ResidualScalars
from keras_addnorm.schemes.rezero import ReZero
from keras_addnorm.schemes.sandwich_ln import SandwichLN
from keras_addnorm.schemes.scheme import (
    ExtraLayer,
    Folding,
    LearnedArray,
    LearnedScale,
    ResidualParts,
    ResidualPlan,
    ResidualScheme,
    StackPosition,
    State,
    StreamState,
)
from keras_addnorm.schemes.streams import StreamScheme
from keras_addnorm.schemes.sub_ln import SubLN
from keras_addnorm.schemes.t_fixup import TFixup

__all__ = [
    "B2T",
    "GPAS",
    "MHC",
    "Admin",
    "AttentionResiduals",
    "DSInit",
    "DeepNorm",
    "DenseFormer",
    "ExtraLayer",
    "Folding",
    "FracConnections",
    "HybridNorm",
    "HyperConnections",
    "Keel",
    "LNScaling",
    "LayerScale",
    "LearnedArray",
    "LearnedScale",
    "MHCLite",
    "MixLN",
    "NoNorm",
    "NoResidual",
    "Orthogonal",
    "Plain",
    "PostLN",
    "PreLN",
    "ReZero",
    "ResPostNorm",
    "ResiDual",
    "ResidualParts",
    "ResidualPlan",
    "ResidualScalars",
    "ResidualScheme",
    "SandwichLN",
    "StackPosition",
    "State",
    "StreamScheme",
    "StreamState",
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
        "gpas": GPAS,
        "rezero": ReZero,
        "t_fixup": TFixup,
        "layer_scale": LayerScale,
        "orthogonal": Orthogonal,
        "no_norm": NoNorm,
        "no_residual": NoResidual,
        "plain": Plain,
        "b2t": B2T,
        "resi_dual": ResiDual,
        "hyper_connections": HyperConnections,
        "mhc_lite": MHCLite,
        "mhc": MHC,
        "attention_residuals": AttentionResiduals,
        "residual_scalars": ResidualScalars,
        "dense_former": DenseFormer,
        "frac_connections": FracConnections,
    },
    module="keras_addnorm.schemes",
)
names = _TABLE.names
register = _TABLE.register
get = _TABLE.get
serialize = _TABLE.serialize
