"""Text to token ids and back, with one SentencePiece vocabulary.

Text is normalised by `Tokenizer.normalizer`, and SentencePiece only splits it. So the vocabulary
can be applied by anything that can look up a string, TensorFlow's own graph operations included
(`keras_addnorm.serving.GraphTokenizer`).
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece

from keras_addnorm.basics.atomic import atomic_file
from keras_addnorm.data.normalization import (
    Charsmap,
    Normalizer,
    get_rule,
    is_written,
    stored_rule,
    training_normalizer,
    utf8_text,
)
from keras_addnorm.data.sentencepiece_training import (
    ModelProto,
    VocabularyTooLargeError,
    train_model,
)
from keras_addnorm.data.strings import describe, strings
from keras_addnorm.data.subword_sampling import Sampler, SubwordSampling
from keras_addnorm.data.vocabulary import (
    END_ID,
    KINDS,
    PAD_ID,
    SPACE_MARK,
    START_ID,
    UNKNOWN_ID,
    Piece,
)

UNKNOWN_SURFACE = "\u2047"

_RESERVED = frozenset(("<pad>", "<s>", "</s>", "<unk>"))
_BYTE_NAME = re.compile("<0x[0-9A-F]{2}>")
_PIECE_TYPES = {1: "normal", 2: "unknown", 3: "control", 4: "user_defined", 5: "unused", 6: "byte"}


class Tokenizer:
    """A SentencePiece vocabulary with this library's special ids.

    Padding is 0, start 1, end 2 and unknown 3. `encode` adds neither start nor end; a run of
    characters that the vocabulary lacks becomes one unknown id, or, with byte fallback, the bytes
    of their UTF-8.

    Before it is split, a text is normalised as the vocabulary was trained: it gets a Unicode form,
    loses the invisible characters that the vocabulary lacks, and every run of white space becomes
    one space. docs/text.md has the rules. Models that SentencePiece trained with a normaliser of
    its own, or without a dummy prefix, are read as SentencePiece reads them.

    Args:
        proto: A serialised SentencePiece model, as `Tokenizer.proto` gives it.

    Attributes:
        proto: The serialised model.
        kind: `"unigram"` or `"bpe"`.
        pieces: All pieces, in the order of their ids.
        surfaces: The text of each piece in a decoded sentence; of a byte, its name in the
            vocabulary.
        normalizer: Normalises a text; called with one, it returns what is split.
        layout: Where the mark of a space stands in the text that is split.
        byte_ids: With byte fallback, the id of each of the 256 bytes; else empty.

    Raises:
        TypeError: If `proto` is not bytes.
        ValueError: If `proto` is no SentencePiece model, one with other special ids, or one with an
            option that is not known here.

    Example:
        ```python
        from keras_addnorm.data import Tokenizer

        tokenizer = Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)
        ids = tokenizer.encode("a  small house")
        assert tokenizer.decode(ids) == "a small house"
        ```

    Reference:
        Kudo and Richardson 2018, "SentencePiece: A simple and language independent subword
        tokenizer and detokenizer for Neural Text Processing", arXiv:1808.06226.
    """

    pad_id = PAD_ID
    start_id = START_ID
    end_id = END_ID
    unknown_id = UNKNOWN_ID

    def __init__(self, proto: bytes) -> None:
        model = _parse_model(proto)
        self.proto = proto
        self.kind = _kind_of(model)
        self.pieces = tuple(
            Piece(piece.piece, piece.score, _PIECE_TYPES[piece.type]) for piece in model.pieces
        )
        _check_special_ids(self.pieces)
        _check_options(model)
        self.surfaces = tuple(_surface(piece) for piece in self.pieces)
        self.layout = Layout.of(model, self.pieces)
        self.byte_ids = _byte_ids(self.pieces) if model.trainer_spec.byte_fallback else ()
        self.normalizer = _normalizer(model, self.pieces, bool(self.byte_ids))
        sentencepiece.set_min_log_level(2)
        self._processor = sentencepiece.SentencePieceProcessor(
            model_proto=_splitting_only(model, self.normalizer) or proto
        )
        self._samplers: dict[SubwordSampling, Sampler] = {}

    @classmethod
    def train(
        cls,
        texts: Iterable[Any],
        *,
        vocabulary_size: int = 8000,
        kind: str = "unigram",
        character_coverage: float = 1.0,
        normalization: str = "nfc",
        user_defined_symbols: Sequence[str] = (),
        byte_fallback: bool = False,
        allow_smaller: bool = False,
    ) -> Tokenizer:
        """Trains a vocabulary. The same texts give the same vocabulary.

        Args:
            texts: Sentences: any iterable of strings, or a `tf.data.Dataset` of string scalars.
            vocabulary_size: Number of pieces, the four special ones included.
            kind: `"unigram"` (Kudo 2018) or `"bpe"` (Sennrich et al. 2016).
            character_coverage: Share of the characters of `texts` that the vocabulary must spell.
                The rarest characters beyond it become unknown. Lower it (0.9995) for text of many
                scripts.
            normalization: The Unicode form of the texts. `"nfc"` keeps what is to be written apart:
                `m²` and `m2`, `，` and `,`, `…` and `...`; a character that the vocabulary lacks
                still becomes its compatible form, if the vocabulary has that. `"nfkc"` makes them
                equal everywhere. `"none"` leaves characters as they are.
            user_defined_symbols: Texts that are always one piece of their own, such as `<2de>` or a
                placeholder, and never changed.
            byte_fallback: Whether a character that the vocabulary lacks is split into the bytes of
                its UTF-8, for which there are 256 more pieces, in place of the unknown one.
            allow_smaller: Whether a vocabulary larger than the texts allow becomes the largest that
                they do, instead of an error.

        Returns:
            The trained tokenizer.

        Raises:
            TypeError: If an element of `texts` is not a string.
            ValueError: If `kind` or `normalization` is unknown, `texts` holds no text, a symbol is
                impossible, or `vocabulary_size` is larger or smaller than the texts allow; the
                message then names the limit.
        """
        rule = get_rule(normalization)
        if kind not in KINDS:
            raise ValueError(
                f"Unknown kind of tokenizer. Expected one of {', '.join(map(repr, KINDS))}; "
                f"received {kind!r}."
            )
        if isinstance(texts, str | bytes):
            raise TypeError(
                "Expected many sentences: a list, another iterable or a tf.data.Dataset of "
                f"strings; received one {type(texts).__name__}. Put it in a list."
            )
        symbols = _checked_symbols(user_defined_symbols)
        normalizer = training_normalizer(rule, symbols)
        sentences = filter(None, map(normalizer, strings(texts)))
        first = next(sentences, None)
        if first is None:
            raise ValueError(
                "Cannot train a tokenizer: the texts are empty. Expected at least one sentence "
                "with a visible character. (An iterator that was read before is empty, too.)"
            )
        every = itertools.chain([first], sentences)
        train = functools.partial(
            train_model,
            kind=kind,
            character_coverage=character_coverage,
            rule_name=rule.name,
            symbols={normalizer.marks[symbol]: symbol for symbol in symbols},
            byte_fallback=byte_fallback,
        )
        if not allow_smaller:
            return cls(train(every, vocabulary_size))
        kept = list(every)
        try:
            return cls(train(iter(kept), vocabulary_size))
        except VocabularyTooLargeError as error:
            return cls(train(iter(kept), error.largest))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Reads a tokenizer that `save` wrote.

        Args:
            path: The file.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is no SentencePiece model with this library's special ids.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"There is no tokenizer at '{path}'. Expected a file that Tokenizer.save wrote. "
                "Check the path, or train one with Tokenizer.train(texts).save(path)."
            )
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"Cannot load the tokenizer '{path}'. {error}") from error

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the tokenizer to one file, atomically.

        Args:
            path: The file; missing folders are made, an existing file is replaced.

        Returns:
            The path of the file.
        """
        path = Path(path)
        with atomic_file(path) as temporary:
            temporary.write_bytes(self.proto)
        return path

    @staticmethod
    def normalize(text: str) -> str:
        """Normalises a text as vocabularies without a rule of their own expect it: with form NFKC.

        Exports of such a vocabulary may not do it themselves. A tokenizer normalises a text as
        its own vocabulary expects it: see `normalizer`.

        The text gets form NFKC, and every run of white space (tabs and line breaks included)
        becomes one space. U+2581, SentencePiece's mark for a space, counts as a space. Half a
        surrogate pair, which no UTF-8 text can hold, becomes U+FFFD.

        Args:
            text: Any text.

        Returns:
            The normalised text.

        Raises:
            TypeError: If `text` is not a string.
        """
        text = utf8_text(text)
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text).replace(SPACE_MARK, " ")
        return " ".join(text.split())

    def encode(self, text: str) -> list[int]:
        """Splits a text into the ids of its pieces, without start or end.

        Args:
            text: Any text; empty and blank texts have no ids.

        Returns:
            The ids.

        Raises:
            TypeError: If `text` is not a string.
        """
        ids: list[int] = self._processor.encode(self.normalizer(utf8_text(text)))
        return ids

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Splits many texts at once, on all cores.

        Args:
            texts: Any texts.

        Returns:
            The ids of each text, in order.

        Raises:
            TypeError: If `texts` is one string, or an element is not a string.
        """
        rows: list[list[int]] = self._processor.encode(self._normalized(texts))
        return rows

    def sample_batch(
        self, texts: Iterable[str], sampling: SubwordSampling, seed: int
    ) -> list[list[int]]:
        """Samples a segmentation of each text: another seed gives other pieces.

        Args:
            texts: Any texts.
            sampling: How far the pieces may differ from those of `encode`.
            seed: The same seed gives the same pieces, in any process.

        Returns:
            The ids of each text, in order. They decode to the same texts as the ids of `encode`.

        Raises:
            TypeError: If `texts` is one string, or an element is not a string.
            ValueError: If `seed` is negative, or `sampling` does not suit the vocabulary.
        """
        return self.resample_batch(self.encode_batch(texts), sampling, seed)

    def resample_batch(
        self, rows: Sequence[Sequence[int]], sampling: SubwordSampling, seed: int
    ) -> list[list[int]]:
        """Samples other segmentations of texts that `encode` has split.

        Args:
            rows: The ids of each text, as `encode` returns them.
            sampling: How far the pieces may differ from `rows`.
            seed: The same seed gives the same pieces, in any process.

        Returns:
            The ids of each text, in order. They decode to the same texts.

        Raises:
            ValueError: If `seed` is negative, or `sampling` does not suit the vocabulary.
        """
        if self.kind == "bpe" and sampling.alpha >= 1:
            raise ValueError(
                "With a BPE vocabulary, alpha is the probability of leaving a merge out. Expected "
                f"alpha below 1; received {sampling}."
            )
        if seed < 0:
            raise ValueError(f"Expected a seed of at least 0; received {seed}.")
        if sampling not in self._samplers:
            self._samplers[sampling] = Sampler(self.pieces, self.kind, sampling)
        return self._samplers[sampling].sample(rows, seed)

    def _normalized(self, texts: Iterable[str]) -> list[str]:
        if isinstance(texts, str | bytes):
            raise TypeError(
                "Expected several texts; received one. Use encode, or put it in a list."
            )
        return [self.normalizer(utf8_text(text)) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Joins the pieces of `ids` into a text.

        Args:
            ids: Token ids. Decoding stops at the first end id and skips padding and start ids; the
                unknown id becomes U+2047, a double question mark; bytes that are no UTF-8 become
                U+FFFD.

        Returns:
            The text, without spaces at its ends.

        Raises:
            ValueError: If an id is negative or not in the vocabulary.
        """
        surfaces: list[Any] = []
        of_pieces = self.surface_bytes if self.byte_ids else self.surfaces
        for token in ids:
            if token == END_ID:
                break
            if not 0 <= token < len(self.surfaces):
                raise ValueError(
                    f"Cannot decode token id {token}. Expected ids from 0 to "
                    f"{len(self.surfaces) - 1}, the vocabulary of this tokenizer. Were they made "
                    "with another tokenizer?"
                )
            surfaces.append(of_pieces[token])
        text = b"".join(surfaces).decode("utf-8", "replace") if self.byte_ids else "".join(surfaces)
        return text.strip(" ")

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]:
        """Joins the pieces of many rows of ids.

        Args:
            batch: Rows of token ids: lists, or an integer array of rank 2.

        Returns:
            One text a row.

        Raises:
            ValueError: If an id is negative or not in the vocabulary.
        """
        rows = batch.tolist() if hasattr(batch, "tolist") else batch
        return [self.decode(row) for row in rows]

    @functools.cached_property
    def surface_bytes(self) -> tuple[bytes, ...]:
        """The bytes that each piece adds to a decoded sentence."""
        found = [surface.encode("utf-8") for surface in self.surfaces]
        for value, token in enumerate(self.byte_ids):
            found[token] = bytes([value])
        return tuple(found)

    @property
    def vocabulary_size(self) -> int:
        """Number of pieces, the special ones included."""
        return len(self.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.proto == other.proto

    def __hash__(self) -> int:
        return hash(self.proto)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        return type(self), (self.proto,)

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, vocabulary_size={self.vocabulary_size})"


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


def _checked_symbols(symbols: Sequence[str]) -> list[str]:
    if isinstance(symbols, str) or not all(isinstance(symbol, str) for symbol in symbols):
        raise TypeError(
            f"Expected user_defined_symbols as a list of strings; received {describe(symbols)}."
        )
    for symbol in symbols:
        if symbol in _RESERVED or _BYTE_NAME.fullmatch(symbol) or SPACE_MARK in symbol:
            raise ValueError(
                f"{symbol!r} cannot be a user-defined symbol: it is the name of a special piece, "
                "or holds U+2581, the mark of a space. Choose another."
            )
    return list(symbols)


def _check_options(model: Any) -> None:
    """Refuses what neither this class nor the tokenizer in a graph does."""
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


def _byte_ids(pieces: Sequence[Piece]) -> tuple[int, ...]:
    ids = {piece.text: token for token, piece in enumerate(pieces) if piece.type == "byte"}
    return tuple(ids[f"<0x{value:02X}>"] for value in range(256))


def _normalizer(model: Any, pieces: Sequence[Piece], has_bytes: bool) -> Normalizer:
    texts = [piece.text for piece in pieces if piece.type == "normal"]
    alphabet = frozenset("".join(texts)) - {SPACE_MARK}
    spec = model.normalizer_spec
    return Normalizer(
        stored_rule(spec, texts),
        (lambda c: c in alphabet or is_written(c)) if has_bytes else alphabet.__contains__,
        [_surface(piece) for piece in pieces if piece.type == "user_defined"],
        Charsmap(spec) if spec.precompiled_charsmap else None,
    )


def _splitting_only(model: Any, normalizer: Normalizer) -> bytes | None:
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
        if piece.type == changed.SentencePiece.USER_DEFINED:
            piece.piece = normalizer.marks[piece.piece.replace(SPACE_MARK, " ")]
            piece.type, piece.score = normal, 0.0
    serialized: bytes = changed.SerializeToString()
    return serialized


def _parse_model(proto: bytes) -> Any:
    if not isinstance(proto, bytes):
        raise TypeError(
            f"Expected a serialised SentencePiece model (bytes); received {describe(proto)}. "
            "Read a file with Tokenizer.load(path)."
        )
    model = ModelProto()
    try:
        model.ParseFromString(proto)
    except Exception as error:  # protobuf's DecodeError, whose module differs between versions
        raise ValueError(_not_a_model(proto)) from error
    if not model.pieces:
        raise ValueError(_not_a_model(proto))
    return model


def _not_a_model(proto: bytes) -> str:
    return (
        f"These {len(proto)} bytes are no SentencePiece model; they are empty or damaged. "
        "Save the tokenizer again."
    )


def _kind_of(model: Any) -> str:
    number = model.trainer_spec.model_type
    if not 1 <= number <= len(KINDS):
        raise ValueError(
            f"Unknown kind of SentencePiece model. Expected one of {', '.join(map(repr, KINDS))}; "
            f"received model_type {number} (3 is 'word', 4 is 'char'). Train one with Tokenizer."
        )
    return KINDS[number - 1]


def _check_special_ids(pieces: Sequence[Piece]) -> None:
    types = [piece.type for piece in pieces[:4]]
    if types != ["control", "control", "control", "unknown"]:
        raise ValueError(
            "The SentencePiece model has other special ids. Expected pad 0, start 1, end 2 and "
            f"unknown 3; received pieces of types {types} there. Train it with Tokenizer.train."
        )


def _surface(piece: Piece) -> str:
    """The text of a piece in a decoded sentence."""
    if piece.type == "control":
        return ""
    if piece.type == "unknown":
        return UNKNOWN_SURFACE
    return piece.text.replace(SPACE_MARK, " ")
