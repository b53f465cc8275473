"""M2M-100 and NLLB-200, the dense models."""

from __future__ import annotations

import dataclasses

from keras_addnorm.data import TextFormat, TokenizerPair, sentencepiece_pieces
from keras_addnorm.interop.families import bart_like
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.families.fields import Field
from keras_addnorm.interop.families.languages import M2M_100
from keras_addnorm.interop.families.text_files import (
    by_mapping,
    languages_behind,
    moved,
    read_json,
    require_text_file,
)
from keras_addnorm.models import Seq2SeqConfig

_PAD = 1

# By whether the language stands behind a source, as it first did.
_NLLB_FORMATS = {
    False: TextFormat(("{source}",), target_prefix=("{target}",)),
    True: TextFormat(source_suffix=("{end}", "{source}"), target_prefix=("{target}",)),
}


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

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read the files of M2M-100, which list the ids, or those of NLLB, which move them."""
        folder, size = checkpoint.folder, config.source_vocabulary_size
        model = require_text_file(folder, "sentencepiece.bpe.model")
        special = {"pad": "<pad>", "start": "</s>", "end": "</s>", "unknown": "<unk>"}
        ids = read_json(folder / "vocab.json")
        if ids:
            named = languages_behind(folder, len(ids))
            languages = named or tuple(f"__{language}__" for language in M2M_100)
            ids |= {name: len(ids) + index for index, name in enumerate(languages)}
            tokenizer = by_mapping(model, ids, size, **special)
            text_format = TextFormat(("__{source}__",), target_prefix=("__{target}__",))
            return TokenizerPair(tokenizer, tokenizer, text_format)
        languages = languages_behind(folder, len(sentencepiece_pieces(model)) + 1)
        if "<mask>" not in languages:
            languages = (*languages, "<mask>")
        tokenizer = moved(
            model, size, first=("<s>", "<pad>", "</s>", "<unk>"), last=languages, **special
        )
        is_legacy = read_json(folder / "tokenizer_config.json").get("legacy_behaviour", False)
        return TokenizerPair(tokenizer, tokenizer, _NLLB_FORMATS[is_legacy])
