"""BART, mBART, mBART-50 and Pegasus."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.data import (
    BaseTokenizer,
    ByteLevelBPETokenizer,
    PieceIds,
    TextFormat,
    TokenizerPair,
)
from keras_addnorm.data.piece_ids import is_filler
from keras_addnorm.data.text_format import unknown_language
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
from keras_addnorm.interop.families.tokenizer_settings import FILES, TokenizerSettings
from keras_addnorm.models import Seq2SeqConfig

_BART_FILES, _BART_FORMAT = ("vocab.json", "merges.txt"), TextFormat(("<s>",))
_PIECES, _PIECES_OF_PEGASUS = "sentencepiece.bpe.model", "spiece.model"
_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
_END, _TABLE = 2, "model.shared.weight"
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
    text_files = (*_BART_FILES, *FILES)
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

    Args:
        target_language: The language to translate into, with which targets of the first mBART
            start; `None` for what the files say.

    Reference:
        Liu et al., "Multilingual Denoising Pre-training for Neural Machine Translation", 2020;
        Tang et al., "Multilingual Translation with Extensible Multilingual Pretraining", 2020.
    """

    model_type = "mbart"
    architecture = "MBartForConditionalGeneration"
    text_files = (_PIECES, *FILES)
    config_file = bart_like.config_file(
        "mBART", {**_LEARNED, "scheme": "pre_ln"}, pad=1, start=None, end=2
    )
    starts: ClassVar = {"MBart50Tokenizer": 2}

    target_language: str | None = dataclasses.field(default=None, kw_only=True)

    def into(self, language: str) -> MBart:
        """Return the family whose targets start with a language, those of mBART-50 excepted."""
        return dataclasses.replace(self, target_language=language)

    def start_of(self, checkpoint: Checkpoint, said: int | None) -> int | None:
        """Return the id of the target language, where one is chosen; else what the files say."""
        found = super().start_of(checkpoint, said)
        is_first = (tokenizer_class(checkpoint) or _class_of(found)) == "MBartTokenizer"
        if self.target_language is None or not is_first:
            return found
        size = checkpoint.settings.get("vocab_size", checkpoint.tensors[_TABLE].shape[0])
        ids, _ = _ids_of_mbart(checkpoint.folder, "MBartTokenizer", size)
        known = _starts(ids)
        if self.target_language not in known:
            raise UserError(unknown_language("target", self.target_language, sorted(known)))
        return known[self.target_language]

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read the files; the first mBART has the language behind a source, mBART-50 before it."""
        folder, size = checkpoint.folder, config.source_vocabulary_size
        # A folder that names no class says by the start which one it is.
        kind = tokenizer_class(checkpoint, tuple(_EDITIONS)) or _class_of(config.start_id)
        ids, make = _ids_of_mbart(folder, kind, size)
        start = ids.pieces[config.start_id] if 0 <= config.start_id < size else ""
        known = _starts(ids)
        if start not in (*_FIRST, *known):
            raise ArgumentError(
                f"The decoder_start_token_id of '{folder}' is no token that starts a target.",
                f"the end, {config.end_id}, or a language, from {min(known.values(), default=0)} "
                f"to {max(known.values(), default=0)}",
                value=config.start_id,
            )
        tokenizer = make(dataclasses.replace(ids, start=start))
        return TokenizerPair(tokenizer, tokenizer, _EDITIONS[kind].text_format)


def _class_of(start: int | None) -> str:
    """Return the tokenizer's class of an mBART whose targets start with an id."""
    return "MBart50Tokenizer" if start == _END else "MBartTokenizer"


def _starts(ids: PieceIds) -> dict[str, int]:
    """Return the ids of the languages."""
    known = {name for name in ids.controls if not is_filler(name)} - {*_FIRST}
    return {name: index for index, name in enumerate(ids.pieces) if name in known}


def _ids_of_mbart(
    folder: Path, kind: str, size: int
) -> tuple[PieceIds, Callable[[PieceIds], BaseTokenizer]]:
    """Return the ids of a folder, and what makes the tokenizer of such."""
    whole, edition = whole_tokenizer(folder, _PIECES), _EDITIONS[kind]
    if whole is not None:
        settings = TokenizerSettings(folder, kind)
        whole.require_around(edition.text_format, settings)
        return whole.piece_ids(settings, size, start="</s>"), whole.tokenizer
    model = require_text_file(folder, _PIECES)
    settings = TokenizerSettings(folder, kind)
    languages = settings.languages or edition.languages
    last = () if settings.gives_languages else (*languages, "<mask>")
    with naming(model):
        ids = PieceIds.around(read_pieces(model), first=_FIRST, last=last, start="</s>")
    return settings.extended(ids, size), functools.partial(tokenizer_of, model)


@dataclasses.dataclass(frozen=True)
class Pegasus(bart_like.NamesOfBart):
    """Pegasus.

    Reference:
        Zhang et al., "PEGASUS: Pre-training with Extracted Gap-sentences", 2019.
    """

    model_type = "pegasus"
    architecture = "PegasusForConditionalGeneration"
    text_files = (_PIECES_OF_PEGASUS, *FILES)
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
