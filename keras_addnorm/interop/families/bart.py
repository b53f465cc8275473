"""BART, mBART, mBART-50 and Pegasus."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import ByteLevelBPETokenizer, PieceIds, TextFormat, TokenizerPair
from keras_addnorm.data.piece_ids import is_filler
from keras_addnorm.interop.families import bart_like
from keras_addnorm.interop.families.family import Checkpoint
from keras_addnorm.interop.families.huggingface import tokenizer_class
from keras_addnorm.interop.families.languages import MBART, MBART_50
from keras_addnorm.interop.families.text_files import (
    moved,
    naming,
    read_ids,
    read_merges,
    read_pieces,
    require_text_file,
    tokenizer_of,
)
from keras_addnorm.interop.families.tokenizer_settings import TokenizerSettings
from keras_addnorm.models import Seq2SeqConfig

_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
_LEARNED = {
    "positions": "learned",
    "embedding_norm": "layer_norm",
    "share_embeddings": True,
    "logits_bias": True,
}


@dataclasses.dataclass(frozen=True)
class _Edition:
    """What differs between the two mBARTs.

    Attributes:
        text_format: Where languages stand; those of cc25's targets are their start.
        languages: The languages, where the files do not list them.
    """

    text_format: TextFormat
    languages: tuple[str, ...]


_CC25 = _Edition(TextFormat(source_suffix=("{end}", "{source}")), MBART)
_FIFTY = _Edition(TextFormat(("{source}",), target_prefix=("{target}",)), MBART_50)
_EDITIONS = {"MBartTokenizer": _CC25, "MBart50Tokenizer": _FIFTY}


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

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read the ids and the merges of bytes."""
        folder = checkpoint.folder
        kind = tokenizer_class(checkpoint, ("BartTokenizer", "RobertaTokenizer"))
        files = [require_text_file(folder, name) for name in ("vocab.json", "merges.txt")]
        settings = TokenizerSettings(folder, kind or "BartTokenizer")
        listed, merges = read_ids(files[0]), read_merges(files[1])
        controls = tuple(name for name in ("<s>", "<mask>") if name in listed)
        with naming(folder / "vocab.json"):
            ids = PieceIds.of_mapping(listed, start="</s>", controls=controls)
        ids = settings.extended(ids, config.source_vocabulary_size)
        with naming(folder / "vocab.json"):
            tokenizer = ByteLevelBPETokenizer(ids, merges)
        return TokenizerPair(tokenizer, tokenizer, TextFormat(("<s>",)))


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
        "mBART", {**_LEARNED, "scheme": "pre_ln"}, pad=1, start=None, end=2
    )
    starts: ClassVar = {"MBart50Tokenizer": 2}

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read the files; the first mBART has the language behind a source, mBART-50 before it."""
        model = require_text_file(checkpoint.folder, "sentencepiece.bpe.model")
        # A folder that names no class says by the start which one it is.
        by_start = "MBart50Tokenizer" if config.start_id == config.end_id else "MBartTokenizer"
        kind = tokenizer_class(checkpoint, tuple(_EDITIONS)) or by_start
        edition, settings = _EDITIONS[kind], TokenizerSettings(checkpoint.folder, kind)
        pieces, size = read_pieces(model), config.source_vocabulary_size
        languages = settings.languages or edition.languages
        last = () if settings.gives_languages else (*languages, "<mask>")
        with naming(model):
            ids = PieceIds.around(pieces, first=_FIRST, last=last, start="</s>")
        ids = settings.extended(ids, size)
        start = ids.pieces[config.start_id] if 0 <= config.start_id < size else ""
        behind = len(pieces) + 1  # the id of the first language
        texts = {token.text for token in ids.added}
        known = [name for name in ids.pieces[behind:] if not is_filler(name) and name not in texts]
        if start not in (*_FIRST, *known):
            raise ArgumentError(
                f"The decoder_start_token_id of '{checkpoint.folder}' is no token that a target "
                "can start with.",
                f"the end, {config.end_id}, or a language, from {behind} to "
                f"{behind + len(known) - 1}",
                value=config.start_id,
            )
        tokenizer = tokenizer_of(model, dataclasses.replace(ids, start=start))
        return TokenizerPair(tokenizer, tokenizer, edition.text_format)


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

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read the model of pieces, whose ids begin behind 103 others."""
        model = require_text_file(checkpoint.folder, "spiece.model")
        kind = tokenizer_class(checkpoint, ("PegasusTokenizer",)) or "PegasusTokenizer"
        settings = TokenizerSettings(checkpoint.folder, kind)
        first = ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 103)))
        size = config.source_vocabulary_size
        tokenizer = moved(model, size, settings, first=first, start="<pad>")
        return TokenizerPair(tokenizer, tokenizer)
