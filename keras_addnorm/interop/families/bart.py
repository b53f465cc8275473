"""BART, mBART, mBART-50 and Pegasus."""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

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
from keras_addnorm.interop.families.tokenizer_json import whole_tokenizer
from keras_addnorm.interop.families.tokenizer_settings import TokenizerSettings
from keras_addnorm.models import Seq2SeqConfig

_BART_FILES, _BART_FORMAT = ("vocab.json", "merges.txt"), TextFormat(("<s>",))
_PIECES, _PIECES_OF_PEGASUS = "sentencepiece.bpe.model", "spiece.model"
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
        settings, text_format = TokenizerSettings(folder, kind or "BartTokenizer"), _BART_FORMAT
        if (whole := whole_tokenizer(folder, *_BART_FILES)) is not None:
            whole.require_around(text_format, settings)
            size = config.source_vocabulary_size
            tokenizer = whole.tokenizer(whole.piece_ids(settings, size, start="</s>"))
            return TokenizerPair(tokenizer, tokenizer, text_format)
        files = [require_text_file(folder, name) for name in _BART_FILES]
        listed, merges = read_ids(files[0]), read_merges(files[1])
        controls = tuple(name for name in ("<s>", "<mask>") if name in listed)
        with naming(folder / "vocab.json"):
            ids = PieceIds.of_mapping(listed, start="</s>", controls=controls)
        ids = settings.extended(ids, config.source_vocabulary_size)
        with naming(folder / "vocab.json"):
            tokenizer = ByteLevelBPETokenizer(ids, merges)
        return TokenizerPair(tokenizer, tokenizer, text_format)


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
        folder, size = checkpoint.folder, config.source_vocabulary_size
        whole = whole_tokenizer(folder, _PIECES)
        # A folder that names no class says by the start which one it is.
        by_start = "MBart50Tokenizer" if config.start_id == config.end_id else "MBartTokenizer"
        kind = tokenizer_class(checkpoint, tuple(_EDITIONS)) or by_start
        edition, settings = _EDITIONS[kind], TokenizerSettings(folder, kind)
        if whole is None:
            model = require_text_file(folder, _PIECES)
            languages = settings.languages or edition.languages
            last = () if settings.gives_languages else (*languages, "<mask>")
            with naming(model):
                ids = PieceIds.around(read_pieces(model), first=_FIRST, last=last, start="</s>")
            ids = settings.extended(ids, size)
            make = functools.partial(tokenizer_of, model)
        else:
            whole.require_around(edition.text_format, settings)
            ids, make = whole.piece_ids(settings, size, start="</s>"), whole.tokenizer
        start = ids.pieces[config.start_id] if 0 <= config.start_id < size else ""
        known = {name for name in ids.controls if not is_filler(name)} - {*_FIRST}
        if start not in (*_FIRST, *known):
            places = [index for index, name in enumerate(ids.pieces) if name in known]
            raise ValueError(
                f"The decoder_start_token_id of '{folder}' is no token that a target can start "
                f"with. Expected the end, {config.end_id}, or a language, from "
                f"{min(places, default=0)} to {max(places, default=0)}. Received: {config.start_id}"
            )
        tokenizer = make(dataclasses.replace(ids, start=start))
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
        folder, size = checkpoint.folder, config.source_vocabulary_size
        kind = tokenizer_class(checkpoint, ("PegasusTokenizer",)) or "PegasusTokenizer"
        whole = whole_tokenizer(folder, _PIECES_OF_PEGASUS)
        settings = TokenizerSettings(folder, kind)
        if whole is not None:
            whole.require_around(TextFormat(), settings)
            tokenizer = whole.tokenizer(whole.piece_ids(settings, size, start="<pad>"))
            return TokenizerPair(tokenizer, tokenizer)
        model = require_text_file(folder, _PIECES_OF_PEGASUS)
        first = ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 103)))
        tokenizer = moved(model, size, settings, first=first, start="<pad>")
        return TokenizerPair(tokenizer, tokenizer)
