"""The vocabulary of one of our models as Marian has it: `</s>`, `<unk>`, no padding."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import Tokenizer
from keras_addnorm.data.piece_ids import filler, is_filler
from keras_addnorm.data.sentencepiece_training import ModelProto
from keras_addnorm.models import Seq2SeqConfig

# Types of pieces.
_UNKNOWN, _CONTROL, _UNUSED = 2, 3, 5
_NO_TEXTS = (_UNKNOWN, _CONTROL, _UNUSED)


@dataclasses.dataclass(frozen=True)
class MarianVocabulary:
    """One side's vocabulary.

    Attributes:
        tokenizer: Our tokenizer.
        ids: Our id of each token that Marian's model has, in its order.
    """

    tokenizer: Tokenizer
    ids: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: object) -> MarianVocabulary:
        """Return what Marian's model has of a tokenizer's pieces.

        Args:
            tokenizer: The tokenizer of one side.

        Returns:
            The vocabulary. Padding and a start of its own are left out.

        Raises:
            ValueError: If it is no SentencePiece tokenizer.
        """
        if not isinstance(tokenizer, Tokenizer):
            raise ArgumentError(
                "Marian splits texts with SentencePiece.",
                "a SentencePiece tokenizer, of the kind 'unigram' or 'bpe'",
                received=f"one of the kind {getattr(tokenizer, 'kind', type(tokenizer))!r}",
            )
        first = (tokenizer.end_id, tokenizer.unknown_id)
        left_out = {*first, tokenizer.pad_id, tokenizer.start_id}
        others = [i for i in range(tokenizer.vocabulary_size) if i not in left_out]
        while others and is_filler(tokenizer.pieces[others[-1]].text):  # rows that no text has
            others.pop()
        return cls(tokenizer, (*first, *others))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the pieces, in Marian's order."""
        return tuple(self.tokenizer.pieces[token].text for token in self.ids)

    def sentencepiece(self, size: int | None = None) -> bytes | None:
        """Return the SentencePiece model whose ids are Marian's; `None` if there can be none.

        Args:
            size: Number of pieces, the last ones such as no text has; `None` for no such pieces.

        Returns:
            The model.
        """
        model = ModelProto.FromString(self.tokenizer.proto)
        names = self.names
        fillers = [filler(token) for token in range(len(names), size or 0)]
        if [piece.piece for piece in model.pieces] == [*names, *fillers]:
            return self.tokenizer.proto
        content = {piece.piece: piece.SerializeToString() for piece in model.pieces}
        texts = {each.piece for each in model.pieces if each.type not in _NO_TEXTS}
        if not set(names[2:]) <= content.keys() or not texts <= set(names):
            return None
        del model.pieces[:]
        for name, kind in zip(names[:2], (_CONTROL, _UNKNOWN), strict=True):
            model.pieces.add(piece=name, score=0.0, type=kind)
        for name in names[2:]:
            model.pieces.add().ParseFromString(content[name])
        for name in fillers:
            model.pieces.add(piece=name, score=0.0, type=_UNUSED)
        spec = model.trainer_spec
        spec.eos_id, spec.unk_id, spec.bos_id, spec.pad_id = 0, 1, -1, -1
        spec.eos_piece, spec.unk_piece = names[:2]
        spec.vocab_size = len(model.pieces)
        return bytes(model.SerializeToString())


def write_vocabularies(
    folder: Path, vocabularies: Sequence[MarianVocabulary], size: int | None = None
) -> list[str]:
    """Write the vocabularies of both sides.

    Args:
        folder: The folder.
        vocabularies: Those of both sides.
        size: Number of pieces that an engine needs, which reads no other file; `None` for Marian,
            for which a model of pieces with other ids becomes two files, the model and a list of
            ids, as OPUS-MT has it.

    Returns:
        The name of each side's file, as Marian is told it.

    Raises:
        ValueError: If a vocabulary needs a list, and an engine reads none.
    """
    source, target = vocabularies
    is_joint = source == target
    models = [each.sentencepiece(size) for each in ((source,) if is_joint else vocabularies)]
    if all(models):
        files = ["vocab.spm"] if is_joint else ["source.spm", "target.spm"]
        for name, content in zip(files, models, strict=True):
            (folder / name).write_bytes(content or b"")
        return [files[0], files[-1]]
    if size is not None:
        raise ArgumentError(
            "The engine reads ids from the SentencePiece model alone.",
            "a tokenizer whose pieces are those of its model",
            "Import a model with one vocab.spm, or save_pretrained as Marian's .npz.",
            received="one with a list of ids beside it",
        )
    is_one = source.names == target.names
    lists = ["vocab.yml"] if is_one else ["source.vocab.yml", "target.vocab.yml"]
    for side, vocabulary in (("source", source), ("target", target)):
        (folder / f"{side}.spm").write_bytes(vocabulary.tokenizer.proto)
    for name, vocabulary in zip(lists, vocabularies, strict=False):
        (folder / name).write_text(_list_of(vocabulary), encoding="utf-8")
    return [lists[0], lists[-1]]


def _list_of(vocabulary: MarianVocabulary) -> str:
    """Return `"piece": id` lines; a string of JSON is one of YAML."""
    return "".join(
        f"{json.dumps(name, ensure_ascii=False)}: {token}\n"
        for token, name in enumerate(vocabulary.names)
    )


def ids_without_tokenizers(config: Seq2SeqConfig) -> tuple[Sequence[int], Sequence[int]]:
    """Return our ids of Marian's tokens for both sides of a model that was read from Marian's file.

    Args:
        config: Its config.

    Returns:
        All ids but the last one, which is padding.

    Raises:
        ValueError: If the special ids are others, and only a tokenizer says what is unknown.
    """
    last = config.target_vocabulary_size - 1
    if (config.pad_id, config.start_id, config.end_id) != (last, last, 0):
        raise ArgumentError(
            "Without tokenizers nothing says which token is the unknown one.",
            "a Pretrained with tokenizers, or a model of Marian's",
            "Load it with its tokenizers.",
            received="neither",
        )
    return range(config.source_vocabulary_size - 1), range(last)
