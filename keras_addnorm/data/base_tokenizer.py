"""What all tokenizers have in common: pieces with ids, and texts made of them."""

from __future__ import annotations

import abc
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_addnorm.basics.argument_checks import is_whole, to_path
from keras_addnorm.basics.atomic import atomic_file
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.basics.suggestions import Elsewhere
from keras_addnorm.data.added_tokens import AddedToken, Cutter
from keras_addnorm.data.normalization import utf8_text
from keras_addnorm.data.piece_ids import is_filler
from keras_addnorm.data.strings import describe, several_texts
from keras_addnorm.data.subword_sampling import Sampler, SubwordSampling
from keras_addnorm.data.vocabulary import Piece


class SpecialPieces(NamedTuple):
    """The ids that a tokenizer treats in a way of their own; some may be the same.

    Attributes:
        pad_id: Padding.
        start_id: What the decoder reads first.
        end_id: What ends a sequence.
        unknown_id: What stands for all that the vocabulary lacks.
    """

    pad_id: int
    start_id: int
    end_id: int
    unknown_id: int


class BaseTokenizer(abc.ABC):
    """Splits texts into the ids of pieces, and joins pieces to texts.

    Every tokenizer has its own ids for padding, start, end and unknown. `encode` adds neither start
    nor end.

    Args:
        kind: How texts are split, in one word.
        pieces: All pieces, in the order of their ids.
        surfaces: The text of each piece in a decoded sentence.
        special: The special ids.
        surface_bytes: The bytes of each piece in a decoded sentence, where a piece may be a part of
            a character; else those of `surfaces`.
        added: The pieces that are one token wherever they stand in a text.

    Attributes:
        kind: As given.
        pieces: As given.
        surfaces: As given; of a byte, its name in the vocabulary.
        pad_id: The id of padding.
        start_id: The id that the decoder reads first.
        end_id: The id that ends a sequence.
        unknown_id: The id of all that the vocabulary lacks.
        surface_bytes: The bytes that each piece adds to a decoded sentence.
        joins_bytes: Whether a piece may be a part of a character.
        added: As given.
    """

    __call__ = Elsewhere("Write tokenizer.encode(text), or tokenizer.encode_batch(texts).")
    tokenize = Elsewhere(
        "Write tokenizer.encode(text); tokenizer.pieces[token].text is the piece of an id."
    )
    batch_encode_plus = Elsewhere("Write tokenizer.encode_batch(texts).")
    batch_decode = Elsewhere("Write tokenizer.decode_batch(ids).")

    def __init__(
        self,
        kind: str,
        pieces: Sequence[Piece],
        surfaces: Sequence[str],
        special: SpecialPieces,
        surface_bytes: Sequence[bytes] | None = None,
        added: Sequence[AddedToken] = (),
    ) -> None:
        self.kind = kind
        self.added = tuple(added)
        self.pieces = tuple(pieces)
        self.surfaces = tuple(surfaces)
        self.pad_id, self.start_id, self.end_id, self.unknown_id = special
        self.joins_bytes = surface_bytes is not None
        encoded = (surface.encode("utf-8") for surface in surfaces)
        self.surface_bytes = tuple(encoded if surface_bytes is None else surface_bytes)
        self._samplers: dict[SubwordSampling, Sampler] = {}

    @property
    @abc.abstractmethod
    def normalization(self) -> str:
        """The name of what is done to the characters of a text; "none" for nothing."""

    @property
    @abc.abstractmethod
    def keeps_outer_space(self) -> bool:
        """Whether white space at the ends of a text is a part of it."""

    @abc.abstractmethod
    def _split(self, texts: list[str]) -> list[list[int]]:
        """The ids of texts that UTF-8 can hold."""

    @abc.abstractmethod
    def _sampler(self, sampling: SubwordSampling) -> Sampler:
        """What samples other pieces; a `ValueError` if there is but one way to split a text."""

    def _split_prepared(self, texts: list[str]) -> list[list[int]]:
        """The ids of what stands between added tokens."""
        return self._split(texts)

    def _make_cutter(self) -> Cutter:
        """What divides texts at the added tokens."""
        return Cutter(self.added, self.ids_of_pieces, None, False)

    @property
    def id_of_space(self) -> int | None:
        """The id of white space before an added token; None if it is a part of the text."""
        return None

    @functools.cached_property
    def cutter(self) -> Cutter | None:
        """Divides texts at the added tokens; `None` if there are none."""
        return self._make_cutter() if self.added else None

    def _ids_of(self, texts: list[str]) -> list[list[int]]:
        """The ids of texts that UTF-8 can hold, added tokens among them."""
        if self.cutter is None:
            return self._split(texts)
        rows = list(map(self.cutter, texts))
        found = iter(
            self._split_prepared([part.text for row in rows for part in row if part.token is None])
        )
        space = [] if self.id_of_space is None else [self.id_of_space]
        return [
            [
                token
                for part in row
                for token in (
                    [*next(found), *(space if part.ends_with_space else [])]
                    if part.token is None
                    else [part.token]
                )
            ]
            for row in rows
        ]

    @property
    @abc.abstractmethod
    def _state(self) -> tuple[Any, ...]:
        """The arguments that make an equal tokenizer."""

    @abc.abstractmethod
    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes."""

    @classmethod
    @abc.abstractmethod
    def from_fields(cls, fields: dict[str, Any]) -> BaseTokenizer:
        """The tokenizer whose file has these plain values."""

    def encode(self, text: str) -> list[int]:
        """Splits a text into the ids of its pieces, without start or end.

        Args:
            text: Any text; an empty one has no ids.

        Returns:
            The ids.

        Raises:
            TypeError: If `text` is not a string.
        """
        if isinstance(text, list | tuple):
            raise ArgumentTypeError(
                expected="one text",
                remedy="tokenizer.encode_batch(texts) splits several.",
                received=describe(text),
            )
        return self._ids_of([utf8_text(text)])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Splits many texts at once.

        Args:
            texts: Any texts.

        Returns:
            The ids of each text, in order.

        Raises:
            TypeError: If `texts` is one string, or an element is not a string.
        """
        return self._ids_of(list(map(utf8_text, several_texts(texts))))

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
        self, rows: Iterable[Sequence[int]], sampling: SubwordSampling, seed: int
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
        return list(self.resampled(rows, sampling, seed))

    def resampled(
        self, rows: Iterable[Sequence[int]], sampling: SubwordSampling, seed: int
    ) -> Iterator[list[int]]:
        """Does what `resample_batch` does with as many texts as there are, one after the other.

        Args:
            rows: The ids of each text, as `encode` returns them.
            sampling: How far the pieces may differ from `rows`.
            seed: The same seed gives the same pieces, in any process.

        Returns:
            The ids of each text, in order.

        Raises:
            ValueError: If `seed` is negative, or `sampling` does not suit the vocabulary.
        """
        if not is_whole(seed, 0):
            raise ArgumentError(expected="a seed of at least 0", value=seed)
        if not isinstance(sampling, SubwordSampling):
            raise ArgumentError(expected="a SubwordSampling", received=describe(sampling))
        if sampling not in self._samplers:
            self._samplers[sampling] = self._sampler(sampling)
        return self._samplers[sampling].sample(rows, seed)

    def decode(self, ids: Iterable[int]) -> str:
        """Joins the pieces of `ids` into a text.

        Args:
            ids: Token ids. Decoding stops at the first end id and skips padding, start ids and
                other pieces that are no text; the unknown id becomes U+2047, a double question
                mark; bytes that are no UTF-8 become U+FFFD.

        Returns:
            The text, without spaces at its ends.

        Raises:
            TypeError: If these are no ids.
            ValueError: If an id is negative or not in the vocabulary.
        """
        surfaces: list[Any] = []
        of_pieces = self.surface_bytes if self.joins_bytes else self.surfaces
        outside: list[Any] = []
        try:
            for token in ids:
                if token == self.end_id:
                    break
                if not 0 <= token < len(self.surfaces):
                    outside.append(token)
                    break
                surfaces.append(of_pieces[token])
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                expected="token ids: several ints, in a list or an array", received=describe(ids)
            ) from error
        if outside:
            raise ValueError(
                f"Cannot decode token id {outside[0]}. Expected ids from 0 to "
                f"{len(self.surfaces) - 1}, the vocabulary of this tokenizer. Were they made with "
                "another tokenizer?"
            )
        text = (
            b"".join(surfaces).decode("utf-8", "replace") if self.joins_bytes else "".join(surfaces)
        )
        return text.strip(" ")

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]:
        """Joins the pieces of many rows of ids.

        Args:
            batch: Rows of token ids: lists, or an integer array of rank 2.

        Returns:
            One text a row.

        Raises:
            TypeError: If these are no ids.
            ValueError: If an id is negative or not in the vocabulary.
        """
        rows = batch.tolist() if hasattr(batch, "tolist") else batch
        if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
            raise ArgumentTypeError(expected="rows of token ids", received=describe(batch))
        return [self.decode(row) for row in rows]

    @functools.cached_property
    def ids_of_pieces(self) -> dict[str, int]:
        """The id of each piece by its name."""
        return {piece.text: token for token, piece in enumerate(self.pieces)}

    @functools.cached_property
    def ids_inside_characters(self) -> frozenset[int]:
        """The ids of pieces that begin inside of a character; none if no piece is a part of one."""
        if not self.joins_bytes:
            return frozenset()
        # UTF-8 marks the bytes that go on with a character.
        goes_on = range(0x80, 0xC0)
        return frozenset(
            token for token, found in enumerate(self.surface_bytes) if found and found[0] in goes_on
        )

    @functools.cached_property
    def unused_ids(self) -> tuple[int, ...]:
        """The ids of no piece: rows of a table that is larger than the vocabulary."""
        return tuple(token for token, piece in enumerate(self.pieces) if is_filler(piece.text))

    @property
    def vocabulary_size(self) -> int:
        """Number of pieces, the special ones included."""
        return len(self.pieces)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the tokenizer to one file, atomically.

        Args:
            path: The file; missing folders are made, an existing file is replaced.

        Returns:
            The path of the file.
        """
        path = to_path(path)
        with atomic_file(path) as temporary:
            temporary.write_bytes(self.to_bytes())
        return path

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        same = isinstance(other, BaseTokenizer) and type(other) is type(self)
        return same and self._state == other._state  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self), self._state))

    def __reduce__(self) -> tuple[type[BaseTokenizer], tuple[Any, ...]]:
        return type(self), self._state

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kind={self.kind!r}, vocabulary_size={self.vocabulary_size})"
