"""Marian as `transformers` keeps it: OPUS-MT."""

from __future__ import annotations

import dataclasses

from keras_addnorm.basics.argument_checks import has_file
from keras_addnorm.data import TextFormat, Tokenizer, TokenizerPair
from keras_addnorm.interop.families import bart_like
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.families.fields import SameAs, copied
from keras_addnorm.interop.families.huggingface import tokenizer_class
from keras_addnorm.interop.families.text_files import by_mapping, read_ids, require_text_file
from keras_addnorm.interop.families.tokenizer_settings import FILES, TokenizerSettings
from keras_addnorm.models import Seq2SeqConfig

_CLASS = "MarianTokenizer"
_SPECIAL = {"pad": "<pad>", "start": "<pad>", "end": "</s>", "unknown": "<unk>"}


@dataclasses.dataclass(frozen=True)
class Marian(bart_like.NamesOfBart):
    """Marian and OPUS-MT in a folder of `transformers`.

    Reference:
        Junczys-Dowmunt et al., "Marian: Fast Neural Machine Translation in C++", 2018;
        Tiedemann and Thottingal, "OPUS-MT", 2020.
    """

    model_type = "marian"
    architecture = "MarianMTModel"
    trains_bias = True
    text_files = ("source.spm", "target.spm", "vocab.json", "target_vocab.json", *FILES)
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

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read two models of pieces, and one list of ids or two."""
        folder = checkpoint.folder
        kind = tokenizer_class(checkpoint, (_CLASS,)) or _CLASS
        lists = [require_text_file(folder, "vocab.json")] * 2
        models = [require_text_file(folder, f"{side}.spm") for side in ("source", "target")]
        settings = TokenizerSettings(folder, kind)
        has_two = has_file(folder / "target_vocab.json")
        if settings.config.get("separate_vocabs") not in (None, has_two):
            raise ValueError(
                f"'{folder}' has {'two lists' if has_two else 'one list'} of ids, which "
                "separate_vocabs of its tokenizer_config.json denies. Expected target_vocab.json "
                "if the sides have vocabularies of their own."
            )
        if has_two:
            lists[1] = folder / "target_vocab.json"
        sizes = config.source_vocabulary_size, config.target_vocabulary_size
        source, target = (
            by_mapping(model, read_ids(path), size, settings, **_SPECIAL)
            for model, path, size in zip(models, lists, sizes, strict=True)
        )
        return TokenizerPair(source, target, text_format(source))


def text_format(source: Tokenizer) -> TextFormat:
    """Return the format, by whether there are tokens such as `>>deu<<`."""
    has_languages = any(
        piece.text.startswith(">>") and piece.text.endswith("<<") for piece in source.pieces
    )
    if not has_languages:
        return TextFormat()
    return TextFormat(source_prefix=(">>{target}<<",), leading_piece=(">>", "<<"))
