"""M2M-100 and NLLB-200, the dense models."""

from __future__ import annotations

import dataclasses

from keras_addnorm.interop.families import bart_like
from keras_addnorm.interop.families.fields import Field

_PAD = 1


@dataclasses.dataclass(frozen=True)
class M2M100(bart_like.NamesOfBart):
    """M2M-100 and the dense models of NLLB-200.

    Reference:
        Fan et al., "Beyond English-Centric Multilingual Machine Translation", 2020; NLLB Team,
        "No Language Left Behind", 2022.
    """

    model_type = "m2m_100"
    architecture = "M2M100ForConditionalGeneration"
    config_file = bart_like.config_file(
        "M2M-100",
        {
            "scheme": "pre_ln",
            "positions": {
                "name": "sinusoidal",
                "layout": "halves",
                "timescales": "half_minus_one",
                "offset": _PAD + 1,
            },
            "share_embeddings": True,
        },
        pad=_PAD,
        start=2,
        end=2,
        vocabulary_size=128112,
        activation="relu",
        scale_embedding=True,
        # The position of the first token is one more than this.
        others=(Field("pad_token_id", _PAD, ("pad_id",), {_PAD: _PAD}),),
    )
