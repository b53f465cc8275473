"""Text to token ids and back, with one SentencePiece vocabulary.

Text is normalised in Python, by `Tokenizer.normalize`, and the SentencePiece model itself is
trained with the `identity` rule. So the vocabulary can be applied by anything that can look up a
string, TensorFlow's own graph operations included (`keras_addnorm.serving.GraphTokenizer`).
"""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from keras_addnorm.basics.atomic import atomic_file
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

_PIECE_TYPES = {1: "normal", 2: "unknown", 3: "control", 4: "user_defined", 5: "unused", 6: "byte"}
_SURROGATES = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A SentencePiece vocabulary with this library's special ids.

    Padding is 0, start 1, end 2 and unknown 3. `encode` adds neither start nor end; a run of
    characters that the vocabulary lacks becomes one unknown id.

    Args:
        proto: A serialised SentencePiece model, as `Tokenizer.proto` gives it.

    Attributes:
        proto: The serialised model.
        kind: `"unigram"` or `"bpe"`.
        pieces: All pieces, in the order of their ids.
        surfaces: The text of each piece in a decoded sentence.

    Raises:
        TypeError: If `proto` is not bytes.
        ValueError: If `proto` is no SentencePiece model, or one with other special ids.

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
        self.surfaces = tuple(_surface(piece) for piece in self.pieces)
        sentencepiece.set_min_log_level(2)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
        self._samplers: dict[SubwordSampling, Sampler] = {}

    @classmethod
    def train(
        cls,
        texts: Iterable[Any],
        *,
        vocabulary_size: int = 8000,
        kind: str = "unigram",
        character_coverage: float = 1.0,
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
            allow_smaller: Whether a vocabulary larger than the texts allow becomes the largest that
                they do, instead of an error.

        Returns:
            The trained tokenizer.

        Raises:
            TypeError: If an element of `texts` is not a string.
            ValueError: If `kind` is unknown, `texts` holds no text, or `vocabulary_size` is larger
                or smaller than the texts allow; the message then names the limit.
        """
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
        sentences = filter(None, map(cls.normalize, strings(texts)))
        first = next(sentences, None)
        if first is None:
            raise ValueError(
                "Cannot train a tokenizer: the texts are empty. Expected at least one sentence "
                "with a visible character. (An iterator that was read before is empty, too.)"
            )
        every = itertools.chain([first], sentences)
        if not allow_smaller:
            return cls(train_model(every, vocabulary_size, kind, character_coverage))
        kept = list(every)
        try:
            return cls(train_model(iter(kept), vocabulary_size, kind, character_coverage))
        except VocabularyTooLargeError as error:
            return cls(train_model(iter(kept), error.largest, kind, character_coverage))

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
        """Normalises a text as the vocabulary expects it.

        The text gets Unicode form NFKC, and every run of white space (tabs and line breaks
        included) becomes one space. U+2581, SentencePiece's mark for a space, counts as a space.
        Half a surrogate pair, which no UTF-8 text can hold, becomes U+FFFD.

        Args:
            text: Any text.

        Returns:
            The normalised text.

        Raises:
            TypeError: If `text` is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(
                f"Expected a text of type str; received {describe(text)}. "
                "Decode bytes with .decode('utf-8') first."
            )
        if not text.isascii():
            text = _SURROGATES.sub("\ufffd", unicodedata.normalize("NFKC", text))
            text = text.replace(SPACE_MARK, " ")
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
        ids: list[int] = self._processor.encode(self.normalize(text))
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
        return [self.normalize(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Joins the pieces of `ids` into a text.

        Args:
            ids: Token ids. Decoding stops at the first end id and skips padding and start ids; the
                unknown id becomes U+2047, a double question mark.

        Returns:
            The text, without spaces at its ends.

        Raises:
            ValueError: If an id is negative or not in the vocabulary.
        """
        surfaces = []
        for token in ids:
            if token == END_ID:
                break
            if not 0 <= token < len(self.surfaces):
                raise ValueError(
                    f"Cannot decode token id {token}. Expected ids from 0 to "
                    f"{len(self.surfaces) - 1}, the vocabulary of this tokenizer. Were they made "
                    "with another tokenizer?"
                )
            surfaces.append(self.surfaces[token])
        return "".join(surfaces).strip(" ")

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
