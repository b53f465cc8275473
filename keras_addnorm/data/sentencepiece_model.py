"""What a SentencePiece model says: its pieces and their ids, its layout, how text is normalised."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.data.base_tokenizer import SpecialPieces
from keras_addnorm.data.normalization import Charsmap, Normalizer, is_written, stored_rule
from keras_addnorm.data.piece_ids import PieceIds
from keras_addnorm.data.sentencepiece_training import ModelProto
from keras_addnorm.data.strings import describe
from keras_addnorm.data.vocabulary import KINDS, SPACE_MARK, Piece

_PIECE_TYPES = {1: "normal", 2: "unknown", 3: "control", 4: "user_defined", 5: "unused", 6: "byte"}


def pieces_of(model: Any) -> tuple[Piece, ...]:
    """The pieces of a model, in its own order."""
    return tuple(
        Piece(piece.piece, piece.score, _PIECE_TYPES[piece.type]) for piece in model.pieces
    )


def parse_model(proto: bytes) -> Any:
    """The message of a serialised model; a `ValueError` if it is none."""
    if not isinstance(proto, bytes):
        raise ArgumentTypeError(
            expected="a serialised SentencePiece model (bytes)",
            remedy="Read a file with Tokenizer.load(path).",
            received=describe(proto),
        )
    model = ModelProto()
    try:
        model.ParseFromString(proto)
    except Exception as error:  # protobuf's DecodeError, whose module differs between versions
        raise ValueError(not_a_model(proto)) from error
    # Of bytes that are no UTF-8, the package makes bytes.
    if not model.pieces or not all(isinstance(piece.piece, str) for piece in model.pieces):
        raise ValueError(not_a_model(proto))
    return model


def not_a_model(proto: bytes) -> str:
    """Says that bytes are no model."""
    return (
        f"These {len(proto)} bytes are no SentencePiece model; they are empty or damaged. "
        "Save the tokenizer again."
    )


def sentencepiece_pieces(model: bytes | str | os.PathLike[str]) -> tuple[str, ...]:
    """The names of a SentencePiece model's pieces, in its own order.

    Args:
        model: The model: a file, or its content.

    Returns:
        The names, for `PieceIds.around`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no SentencePiece model.
    """
    content = model if isinstance(model, bytes) else existing_file(model).read_bytes()
    return tuple(piece.piece for piece in parse_model(content).pieces)


def existing_file(path: str | os.PathLike[str]) -> Path:
    """The path of a tokenizer's file; a `FileNotFoundError` if there is none."""
    path = to_path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no tokenizer at '{path}'. Expected a file that Tokenizer.save wrote. "
            "Check the path, or train one with Tokenizer.train(texts).save(path)."
        )
    return path


def require_supported(model: Any) -> None:
    """Refuses what neither `Tokenizer` nor the tokenizer in a graph does."""
    refused = {
        "escape_whitespaces=false": not model.normalizer_spec.escape_whitespaces,
        "a denormalizer": bool(model.denormalizer_spec.precompiled_charsmap),
    }
    for option, is_set in refused.items():
        if is_set:
            raise ValueError(
                f"The SentencePiece model has {option}, which is not supported. Train it without, "
                "or with Tokenizer.train."
            )


def kind_of(model: Any) -> str:
    """The kind of a model, `"unigram"` or `"bpe"`; others are refused."""
    number = model.trainer_spec.model_type
    if not 1 <= number <= len(KINDS):
        raise ArgumentError(
            "Unknown kind of SentencePiece model.",
            f"one of {', '.join(map(repr, KINDS))}",
            "Train one with Tokenizer.",
            received=f"model_type {number} (3 is 'word', 4 is 'char')",
        )
    return KINDS[number - 1]


class Layout(NamedTuple):
    """Where the mark of a space, U+2581, stands in the text that is split.

    Attributes:
        has_outer_mark: Whether the text gets a mark where no space is: before its first word, or
            behind its last one.
        is_suffix: Whether the mark belongs to the word before it.
        joins_words: Whether a piece can go on over a space.
    """

    has_outer_mark: bool
    is_suffix: bool
    joins_words: bool

    @classmethod
    def of(cls, model: Any, pieces: Sequence[Piece]) -> Layout:
        """The layout that a model was trained with."""
        is_suffix = model.trainer_spec.treat_whitespace_as_suffix
        inner = slice(None, -1) if is_suffix else slice(1, None)
        return cls(
            model.normalizer_spec.add_dummy_prefix,
            is_suffix,
            any(SPACE_MARK in piece.text[inner] for piece in pieces if piece.type == "normal"),
        )


def with_ids(
    model: Any, model_pieces: Sequence[Piece], ids: PieceIds | None
) -> tuple[Sequence[Piece], Sequence[int], SpecialPieces]:
    """Gives the pieces of a model their ids.

    Args:
        model: The model.
        model_pieces: Its pieces.
        ids: The ids; `None` for the model's own.

    Returns:
        All pieces by their ids, the id of each of the model's (-1: unknown), and the special ones.
    """
    if ids is None:
        return model_pieces, range(len(model_pieces)), _own_special_ids(model, model_pieces)
    place = {name: token for token, name in enumerate(ids.pieces)}
    special = SpecialPieces(place[ids.pad], place[ids.start], place[ids.end], place[ids.unknown])
    of_model = {piece.text: piece for piece in model_pieces}
    silent = {ids.pad, ids.start, ids.end, *ids.controls} - {ids.unknown}
    added = {token.text for token in ids.added}
    pieces = []
    for name in ids.pieces:
        piece = of_model.get(name, Piece(name, 0.0, "unused"))
        if name in added:
            piece = Piece(name, 0.0, "user_defined")
        elif name in silent or piece.type == "control":
            piece = Piece(name, 0.0, "control")
        elif name == ids.unknown or piece.type == "unknown":
            piece = Piece(name, 0.0, "unknown")
        pieces.append(piece)
    model_ids = [
        -1 if piece.type == "unknown" else place.get(piece.text, -1) for piece in model_pieces
    ]
    return pieces, model_ids, special


def _own_special_ids(model: Any, pieces: Sequence[Piece]) -> SpecialPieces:
    """The special ids that a model has itself."""
    spec = model.trainer_spec
    found = {piece.text: token for token, piece in enumerate(pieces) if piece.type == "control"}
    unknown = [token for token, piece in enumerate(pieces) if piece.type == "unknown"]
    pad, end = found.get(spec.pad_piece), found.get(spec.eos_piece)
    if pad is None or end is None or not unknown:
        raise ArgumentError(
            "The SentencePiece model has other special ids.",
            f"pieces of its own for padding ({spec.pad_piece!r}), end ({spec.eos_piece!r}) and all "
            "that is unknown",
            "Give its pieces ids with Tokenizer.from_sentencepiece(model, PieceIds(...)), or "
            "train it with Tokenizer.train.",
            received=f"{found}, unknown {unknown}",
        )
    return SpecialPieces(pad, found.get(spec.bos_piece, pad), end, unknown[0])


def ids_of_runs(pieces: Sequence[Piece], model_pieces: Sequence[Piece]) -> dict[str, int]:
    """The ids of names that consist of characters which are unknown to the model."""
    known = {
        piece.text
        for piece in model_pieces
        if len(piece.text) == 1 and piece.type in ("normal", "user_defined")
    }
    own = {piece.text for piece in model_pieces if piece.type == "user_defined"}
    return {
        piece.text: token
        for token, piece in enumerate(pieces)
        if piece.type in ("normal", "unused", "user_defined")
        and known.isdisjoint(piece.text)
        and piece.text not in own
    }


def byte_ids(pieces: Sequence[Piece]) -> tuple[int, ...]:
    """The ids of the 256 bytes; a `ValueError` if one is missing."""
    ids = {piece.text: token for token, piece in enumerate(pieces) if piece.type == "byte"}
    names = [f"<0x{value:02X}>" for value in range(256)]
    if missing := [name for name in names if name not in ids]:
        raise ValueError(
            "With byte fallback, each of the 256 bytes has an id. Expected them among the pieces; "
            f"missing are {missing[:4]} and {len(missing)} in all."
        )
    return tuple(ids[name] for name in names)


def is_symbol(piece: Piece) -> bool:
    """Tells whether a piece is a text that is set aside before anything is done to it."""
    return piece.type == "user_defined" and SPACE_MARK not in piece.text


def normalizer_of(model: Any, pieces: Sequence[Piece], has_bytes: bool) -> Normalizer:
    """What brings a text into the form that a model was trained with."""
    texts = [piece.text for piece in pieces if piece.type == "normal"]
    alphabet = frozenset("".join(texts)) - {SPACE_MARK}
    spec = model.normalizer_spec
    return Normalizer(
        stored_rule(spec, texts),
        (lambda c: c in alphabet or is_written(c)) if has_bytes else alphabet.__contains__,
        [piece.text for piece in pieces if is_symbol(piece)],
        Charsmap(spec) if spec.precompiled_charsmap else None,
        spec.remove_extra_whitespaces,
    )


def splitting_only(model: Any, normalizer: Normalizer) -> bytes | None:
    """A model for SentencePiece that splits normalised text; None if it is the same one.

    A user-defined symbol is a character of its own there. So no piece can hold a part of it, which
    SentencePiece does not promise.
    """
    if not normalizer.marks and normalizer.charsmap is None:
        return None
    changed = ModelProto()
    changed.CopyFrom(model)
    changed.normalizer_spec.precompiled_charsmap = b""
    normal = changed.SentencePiece.NORMAL
    for piece in changed.pieces:
        if piece.piece in normalizer.marks and piece.type == changed.SentencePiece.USER_DEFINED:
            piece.piece = normalizer.marks[piece.piece]
            piece.type, piece.score = normal, 0.0
    serialized: bytes = changed.SerializeToString()
    return serialized
