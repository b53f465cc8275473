"""M2M-100 and NLLB-200, the dense models."""

from __future__ import annotations

import dataclasses

from keras_addnorm.data import TextFormat, TokenizerPair
from keras_addnorm.interop.families import bart_like
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.families.fields import Field
from keras_addnorm.interop.families.huggingface import tokenizer_class
from keras_addnorm.interop.families.languages import M2M_100, WMT21
from keras_addnorm.interop.families.text_files import (
    by_mapping,
    moved,
    read_ids,
    require_text_file,
)
from keras_addnorm.interop.families.tokenizer_json import whole_tokenizer
from keras_addnorm.interop.families.tokenizer_settings import FILES, TokenizerSettings
from keras_addnorm.models import Seq2SeqConfig

_PAD = 1
_MODEL = "sentencepiece.bpe.model"

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
    text_files = (_MODEL, "vocab.json", *FILES)
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
        whole = whole_tokenizer(folder, _MODEL)
        ids = read_ids(folder / "vocab.json")
        # The one class lists the ids, the other one does not.
        expected = "M2M100Tokenizer" if ids else "NllbTokenizer"
        kind = tokenizer_class(checkpoint, ("M2M100Tokenizer", "NllbTokenizer")) or expected
        if kind != expected:
            raise ValueError(
                f"The tokenizer of '{folder}' is {kind}, and there is {'a' if ids else 'no'} "
                f"vocab.json. Expected {expected}. Were the files of two models mixed?"
            )
        settings = TokenizerSettings(folder, kind)
        is_legacy = settings.config.get("legacy_behaviour") or False
        nllb_format = _NLLB_FORMATS[is_legacy]
        special = {"pad": "<pad>", "start": "</s>", "end": "</s>", "unknown": "<unk>"}
        if whole is not None:
            whole.require_around(nllb_format, settings)
            tokenizer = whole.tokenizer(whole.piece_ids(settings, size, **special))
            return TokenizerPair(tokenizer, tokenizer, nllb_format)
        model = require_text_file(folder, _MODEL)
        if ids:
            default = WMT21 if settings.config.get("language_codes") == "wmt21" else M2M_100
            languages = settings.languages or tuple(f"__{language}__" for language in default)
            if not settings.gives_languages:
                ids |= {name: len(ids) + index for index, name in enumerate(languages)}
            tokenizer = by_mapping(model, ids, size, settings, **special)
            text_format = TextFormat(("__{source}__",), target_prefix=("__{target}__",))
            return TokenizerPair(tokenizer, tokenizer, text_format)
        last = () if settings.gives_languages else (*settings.languages, "<mask>")
        tokenizer = moved(
            model, size, settings, first=("<s>", "<pad>", "</s>", "<unk>"), last=last, **special
        )
        return TokenizerPair(tokenizer, tokenizer, nllb_format)
