"""Text to token ids and back, with SentencePiece.

A `Tokenizer` is one vocabulary; a `TokenizerPair` is the source side and the target side of a
translation model, which may share one vocabulary.

Text is normalised in Python, by `Tokenizer.normalize`, and the SentencePiece model itself is
trained with the `identity` rule. So the vocabulary can be applied by anything that can look up a
string, TensorFlow's own graph operations included (`keras_addnorm.serving.GraphTokenizer`).
"""

from __future__ import annotations

import io
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_addnorm.data.pieces import SPACE_MARK, Piece
from keras_addnorm.data.subword_sampling import Sampler, SubwordSampling

KINDS = ("unigram", "bpe")
PAD_ID, START_ID, END_ID, UNKNOWN_ID = 0, 1, 2, 3
UNKNOWN_SURFACE = "\u2047"

# protobuf makes this class when it is imported, where type checkers cannot see it.
_ModelProto: Any = sentencepiece_model_pb2.ModelProto  # type: ignore[attr-defined]
_PIECE_TYPES = {1: "normal", 2: "unknown", 3: "control", 4: "user_defined", 5: "unused", 6: "byte"}
_SURROGATES = re.compile("[\ud800-\udfff]")
_TOO_LARGE = re.compile(r"Vocabulary size too high.*value <= (\d+)")
_TOO_SMALL = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")

# Steps in which unigram scores are stored. Sums of such numbers are exact in float32 up to 65,536,
# so a segmentation does not depend on what stands before it in the sentence, and two spellings of
# the algorithm (SentencePiece's and the one in the graph) cannot differ by rounding.
_SCORE_STEPS_PER_UNIT = 256


class Tokenizer:
    """A SentencePiece vocabulary with this library's special ids.

    Padding is 0, start 1, end 2 and unknown 3. `encode` adds none of them; a run of characters that
    the vocabulary lacks becomes one unknown id.

    Args:
        proto: A serialised SentencePiece model, as `Tokenizer.proto` gives it.

    Attributes:
        proto: The serialised model.
        kind: `"unigram"` or `"bpe"`.
        pieces: All pieces, in the order of their ids.
        surfaces: What each piece reads as in a decoded text.

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
    ) -> Tokenizer:
        """Learns a vocabulary. The same texts give the same vocabulary.

        Args:
            texts: Sentences: any iterable of strings, or a `tf.data.Dataset` of string scalars.
            vocabulary_size: Number of pieces, the four special ones included.
            kind: `"unigram"` (Kudo 2018) or `"bpe"` (Sennrich et al. 2016).
            character_coverage: Share of the characters of `texts` that the vocabulary must spell.
                The rarest characters beyond it become unknown. Lower it (0.9995) for text of many
                scripts.

        Returns:
            The trained tokenizer.

        Raises:
            TypeError: If an element of `texts` is not a string.
            ValueError: If `kind` is unknown, `texts` holds no text, or `vocabulary_size` is larger
                or smaller than the texts allow; the message then says what they allow.
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
        sentences = filter(None, map(cls.normalize, _strings(texts)))
        first = next(sentences, None)
        if first is None:
            raise ValueError(
                "Cannot train a tokenizer: the texts are empty. Expected at least one sentence "
                "with a visible character. (An iterator that was read before is empty, too.)"
            )
        return cls(_train(_chain(first, sentences), vocabulary_size, kind, character_coverage))

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
        """Writes the tokenizer to one file, whole or not at all.

        Args:
            path: The file; missing folders are made, an existing file is replaced.

        Returns:
            The path of the file.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self.proto)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        return path

    @staticmethod
    def normalize(text: str) -> str:
        """Brings a text into the form that the vocabulary is made of.

        Unicode form NFKC, and every run of white space (tabs and line breaks, too) becomes one
        space. U+2581, the mark that SentencePiece puts in place of a space, counts as one; half a
        surrogate pair, which no UTF-8 text can hold, becomes U+FFFD.

        Args:
            text: Any text.

        Returns:
            The normalised text.

        Raises:
            TypeError: If `text` is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(
                f"Expected a text of type str; received {_describe(text)}. "
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
        """Splits many texts at random: each call with another seed gives other pieces.

        Args:
            texts: Any texts.
            sampling: How far the pieces stray from those of `encode`.
            seed: The same seed gives the same pieces, in any process.

        Returns:
            The ids of each text, in order. They decode to the same texts as those of `encode`.

        Raises:
            TypeError: If `texts` is one string, or an element is not a string.
            ValueError: If `seed` is negative, or `sampling` does not suit the vocabulary.
        """
        return self.resample_batch(self.encode_batch(texts), sampling, seed)

    def resample_batch(
        self, rows: Sequence[Sequence[int]], sampling: SubwordSampling, seed: int
    ) -> list[list[int]]:
        """Splits many texts at random that are split as ever already.

        Args:
            rows: The ids of each text, as `encode` gives them.
            sampling: How far the pieces stray from those.
            seed: The same seed gives the same pieces, in any process.

        Returns:
            The ids of each text, in order. They decode to the same texts.

        Raises:
            ValueError: If `seed` is negative, or `sampling` does not suit the vocabulary.
        """
        if self.kind == "bpe" and sampling.alpha >= 1:
            raise ValueError(
                "With a BPE vocabulary, alpha is the probability to leave a merge out. Expected it "
                f"below 1; received {sampling}."
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
        """Joins the pieces of `ids` to a text.

        Args:
            ids: Token ids. Reading stops at the first end id; padding and start ids are left out;
                the unknown id reads as U+2047, a double question mark.

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


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of the two sides of a translation model.

    Attributes:
        source: Of the language to translate from.
        target: Of the language to translate to; the same object or an equal one if joint.

    Example:
        ```python
        from keras_addnorm.data import TokenizerPair

        pairs = [("a small house", "ein kleines Haus"), ("a mouse", "eine Maus")]
        tokenizers = TokenizerPair.train(pairs, vocabulary_size=22, joint=True)
        assert tokenizers.is_joint
        ```
    """

    source: Tokenizer
    target: Tokenizer

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            if not isinstance(getattr(self, side), Tokenizer):
                raise TypeError(
                    f"Expected a Tokenizer as {side}; received {_describe(getattr(self, side))}."
                )

    @classmethod
    def joint(cls, tokenizer: Tokenizer) -> TokenizerPair:
        """Makes a pair that uses one vocabulary on both sides.

        Args:
            tokenizer: The shared vocabulary.

        Returns:
            The pair.
        """
        return cls(tokenizer, tokenizer)

    @classmethod
    def of(cls, tokenizers: Tokenizer | TokenizerPair) -> TokenizerPair:
        """Accepts a pair as it is, and one tokenizer as a joint pair.

        Args:
            tokenizers: A pair, or the one tokenizer of both sides.

        Returns:
            The pair.

        Raises:
            TypeError: If it is neither.
        """
        if isinstance(tokenizers, cls):
            return tokenizers
        if isinstance(tokenizers, Tokenizer):
            return cls.joint(tokenizers)
        raise TypeError(
            "Expected a TokenizerPair, or one Tokenizer for both languages; received "
            f"{_describe(tokenizers)}."
        )

    @classmethod
    def train(
        cls,
        pairs: Iterable[Any],
        *,
        vocabulary_size: int = 8000,
        kind: str = "unigram",
        joint: bool = True,
        character_coverage: float = 1.0,
    ) -> TokenizerPair:
        """Learns the vocabularies of a set of sentence pairs.

        Args:
            pairs: Pairs of strings: any iterable, or a `tf.data.Dataset` of two string scalars.
            vocabulary_size: Number of pieces of the joint vocabulary, or of each of the two.
            kind: `"unigram"` or `"bpe"`.
            joint: One vocabulary of both languages, or one for each. Languages with a common
                alphabet gain from a joint one: names and numbers are spelled alike on both sides.
            character_coverage: As in `Tokenizer.train`.

        Returns:
            The pair.

        Raises:
            TypeError: If an element is not a pair of strings.
            ValueError: As `Tokenizer.train` does.
        """
        sides = list(string_pairs(pairs))
        options: dict[str, Any] = {
            "vocabulary_size": vocabulary_size,
            "kind": kind,
            "character_coverage": character_coverage,
        }
        if joint:
            return cls.joint(Tokenizer.train((text for pair in sides for text in pair), **options))
        return cls(
            Tokenizer.train((source for source, _ in sides), **options),
            Tokenizer.train((target for _, target in sides), **options),
        )

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> TokenizerPair:
        """Reads a pair that `save` wrote.

        Args:
            directory: The folder.

        Returns:
            The pair.

        Raises:
            FileNotFoundError: If the folder holds no pair.
            ValueError: If a file in it is damaged.
        """
        directory = Path(directory)
        if (directory / "tokenizer.model").is_file():
            return cls.joint(Tokenizer.load(directory / "tokenizer.model"))
        paths = [directory / f"{side}.model" for side in ("source", "target")]
        if not all(path.is_file() for path in paths):
            raise FileNotFoundError(
                f"There are no tokenizers in '{directory}'. Expected 'tokenizer.model' (joint), or "
                "'source.model' and 'target.model', as TokenizerPair.save writes them."
            )
        return cls(*map(Tokenizer.load, paths))

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes `tokenizer.model` if joint, else `source.model` and `target.model`.

        Args:
            directory: The folder; made if missing. A pair of the other form in it is removed.

        Returns:
            The folder.
        """
        directory = Path(directory)
        files = (
            {"tokenizer.model": self.source}
            if self.is_joint
            else {"source.model": self.source, "target.model": self.target}
        )
        for name, tokenizer in files.items():
            tokenizer.save(directory / name)
        for name in {"tokenizer.model", "source.model", "target.model"} - files.keys():
            (directory / name).unlink(missing_ok=True)
        return directory

    @property
    def is_joint(self) -> bool:
        """Whether both sides have the same vocabulary."""
        return self.source == self.target


def string_pairs(pairs: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Reads pairs of texts as Python strings.

    Args:
        pairs: An iterable of two strings each (bytes are read as UTF-8), or a `tf.data.Dataset`
            of two string scalars.

    Yields:
        The source text and the target text.

    Raises:
        TypeError: If an element is not a pair of strings.
    """
    for index, pair in enumerate(_elements(pairs)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                f"Expected pairs (source text, target text); received {_describe(pair)} at "
                f"position {index}."
            )
        yield _string(pair[0], index), _string(pair[1], index)


def _elements(items: Iterable[Any]) -> Iterator[Any]:
    """Iterates a tf.data.Dataset as NumPy values and anything else as it is."""
    numpy_iterator = getattr(items, "as_numpy_iterator", None)
    return iter(items) if numpy_iterator is None else numpy_iterator()


def _strings(texts: Iterable[Any]) -> Iterator[str]:
    return (_string(text, index) for index, text in enumerate(_elements(texts)))


def _string(value: Any, index: int) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise TypeError(
            f"Expected texts of type str; received {_describe(value)} at position {index}."
        )
    return value


def _describe(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:60] + '...'}"


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _train(texts: Iterator[str], vocabulary_size: int, kind: str, coverage: float) -> bytes:
    """Runs SentencePiece's trainer and turns its errors into readable ones."""
    buffer = io.BytesIO()
    failures: list[Exception] = []

    def guarded() -> Iterator[str]:
        # SentencePiece replaces what an iterator raises by an error of its own.
        try:
            yield from texts
        except Exception as error:
            failures.append(error)

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=guarded(),
            model_writer=buffer,
            vocab_size=vocabulary_size,
            model_type=kind,
            character_coverage=coverage,
            normalization_rule_name="identity",
            pad_id=PAD_ID,
            bos_id=START_ID,
            eos_id=END_ID,
            unk_id=UNKNOWN_ID,
            minloglevel=2,
        )
    except RuntimeError as error:
        if failures:
            raise failures[0] from None
        raise ValueError(_training_error(str(error), vocabulary_size, kind)) from error
    if failures:
        raise failures[0]
    return _with_exact_scores(buffer.getvalue()) if kind == "unigram" else buffer.getvalue()


def _training_error(message: str, vocabulary_size: int, kind: str) -> str:
    if match := _TOO_LARGE.search(message):
        return (
            f"vocabulary_size={vocabulary_size} is too large for this text: a {kind} vocabulary of "
            f"it has at most {match[1]} pieces. Pass vocabulary_size={match[1]} or less, or more "
            "text."
        )
    if match := _TOO_SMALL.search(message):
        return (
            f"vocabulary_size={vocabulary_size} is too small for this text: its characters and the "
            f"special pieces alone are {match[1]}. Pass a larger vocabulary_size, or a lower "
            "character_coverage to leave rare characters out."
        )
    return f"SentencePiece could not train a vocabulary of {vocabulary_size} pieces: {message}"


def _with_exact_scores(proto: bytes) -> bytes:
    model = _ModelProto.FromString(proto)
    for piece in model.pieces:
        piece.score = round(piece.score * _SCORE_STEPS_PER_UNIT) / _SCORE_STEPS_PER_UNIT
    exact: bytes = model.SerializeToString(deterministic=True)
    return exact


def _parse_model(proto: bytes) -> Any:
    if not isinstance(proto, bytes):
        raise TypeError(
            f"Expected a serialised SentencePiece model (bytes); received {_describe(proto)}. "
            "Read a file with Tokenizer.load(path)."
        )
    model = _ModelProto()
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
    """Returns what a piece reads as."""
    if piece.type == "control":
        return ""
    if piece.type == "unknown":
        return UNKNOWN_SURFACE
    return piece.text.replace(SPACE_MARK, " ")
