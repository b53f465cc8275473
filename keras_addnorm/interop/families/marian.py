"""Marian as `transformers` keeps it: OPUS-MT."""

from __future__ import annotations

import dataclasses

from keras_addnorm.interop.families import bart_like
from keras_addnorm.interop.families.fields import SameAs, copied


@dataclasses.dataclass(frozen=True)
class Marian(bart_like.NamesOfBart):
    """Marian and OPUS-MT in a folder of `transformers`.

    Reference:
        Junczys-Dowmunt et al., "Marian: Fast Neural Machine Translation in C++", 2018;
        Tiedemann and Thottingal, "OPUS-MT", 2020.
    """

    model_type = "marian"
    architecture = "MarianMTModel"
    config_file = bart_like.config_file(
        "Marian",
        {
            "scheme": "post_ln",
            "positions": {"name": "sinusoidal", "layout": "halves"},
            "logits_bias": True,
        },
        pad=58100,
        start=58100,
        end=0,
        others=(
            copied("vocab_size", 58101, "source_vocabulary_size"),
            copied("decoder_vocab_size", SameAs("vocab_size"), "target_vocabulary_size"),
            copied("share_encoder_decoder_embeddings", True, "share_embeddings"),
        ),
    )
