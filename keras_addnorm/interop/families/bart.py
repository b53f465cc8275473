"""BART, mBART, mBART-50 and Pegasus."""

from __future__ import annotations

import dataclasses

from keras_addnorm.interop.families import bart_like

_LEARNED = {
    "positions": "learned",
    "embedding_norm": "layer_norm",
    "share_embeddings": True,
    "logits_bias": True,
}


@dataclasses.dataclass(frozen=True)
class Bart(bart_like.NamesOfBart):
    """BART.

    Reference:
        Lewis et al., "BART: Denoising Sequence-to-Sequence Pre-training", 2019.
    """

    model_type = "bart"
    architecture = "BartForConditionalGeneration"
    config_file = bart_like.config_file(
        "BART", {**_LEARNED, "scheme": "post_ln"}, pad=1, start=2, end=2
    )


@dataclasses.dataclass(frozen=True)
class MBart(bart_like.NamesOfBart):
    """mBART and mBART-50.

    Reference:
        Liu et al., "Multilingual Denoising Pre-training for Neural Machine Translation", 2020;
        Tang et al., "Multilingual Translation with Extensible Multilingual Pretraining", 2020.
    """

    model_type = "mbart"
    architecture = "MBartForConditionalGeneration"
    config_file = bart_like.config_file(
        "mBART", {**_LEARNED, "scheme": "pre_ln"}, pad=1, start=2, end=2
    )


@dataclasses.dataclass(frozen=True)
class Pegasus(bart_like.NamesOfBart):
    """Pegasus.

    Reference:
        Zhang et al., "PEGASUS: Pre-training with Extracted Gap-sentences", 2019.
    """

    model_type = "pegasus"
    architecture = "PegasusForConditionalGeneration"
    config_file = bart_like.config_file(
        "Pegasus",
        {
            "scheme": "pre_ln",
            "positions": {"name": "sinusoidal", "layout": "halves"},
            "share_embeddings": True,
            "logits_bias": True,
        },
        pad=0,
        start=0,
        end=1,
    )
