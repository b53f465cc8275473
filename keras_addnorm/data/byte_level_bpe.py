"""Byte-level BPE: words by a pattern, and in each word merges of bytes, as GPT-2 and BART do."""

from __future__ import annotations

import functools
import heapq
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import read_json, read_text
from keras_addnorm.data.base_tokenizer import BaseTokenizer, SpecialPieces
from keras_addnorm.data.long_words import LONGEST_WORD, parts_of_word
from keras_addnorm.data.piece_ids import PieceIds
from keras_addnorm.data.strings import describe
from keras_addnorm.data.subword_sampling import Sampler, SubwordSampling
from keras_addnorm.data.tokenizer_documents import document
from keras_addnorm.data.vocabulary import Piece

NAME = "byte_level_bpe"
# What belongs to a word in any language: English endings stand alone.
ENDINGS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
# Unicode's property White_Space, which `str.isspace` is not.
SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CACHED_WORDS = 2**17


class ByteLevelBPETokenizer(BaseTokenizer):
    """Byte-level BPE, as BART has it: nothing is unknown, and nothing is normalised.

    A text is divided into words with the space before each, and the bytes of each word are merged,
    the pair of the best rank first. In the names of pieces a byte is one visible character: a space
    is `\u0120`.

    Args:
        ids: The id of each piece.
        merges: The pairs of pieces that are merged, the best first.

    Attributes:
        ids: As given.
        merges: As given.

    Raises:
        ValueError: If a byte has no piece.

    Example:
        ```python
        from keras_addnorm.data import ByteLevelBPETokenizer, byte_alphabet

        names = ["<s>", "<pad>", "</s>", "<unk>", *byte_alphabet(), "\u0120a"]
        tokenizer = ByteLevelBPETokenizer.from_vocabulary(
            {name: index for index, name in enumerate(names)}, ["\u0120 a"], start="</s>"
        )
        assert [tokenizer.pieces[i].text for i in tokenizer.encode("a a")] == ["a", "\u0120a"]
        ```

    Reference:
        Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; Lewis et al.
        2020, "BART", arXiv:1910.13461.
    """

    def __init__(self, ids: PieceIds, merges: Sequence[tuple[str, str]]) -> None:
        self.ids = ids
        self.merges = tuple((first, second) for first, second in merges)
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        place = {name: token for token, name in enumerate(ids.pieces)}
        if missing := [name for name in byte_alphabet() if name not in place]:
            raise ValueError(
                "Each of the 256 bytes is a piece of a byte-level vocabulary. Expected them among "
                f"the pieces; missing are {missing[:4]} and {len(missing)} in all."
            )
        self._place = place
        silent = {ids.pad, ids.start, ids.end, ids.unknown, *ids.controls}
        value = {name: index for index, name in enumerate(byte_alphabet())}
        # One that the vocabulary has as well is a piece of words, too.
        own = {*value, *(first + second for first, second in self.merges)}
        texts = {token.text for token in ids.added} - own
        types = {**dict.fromkeys(silent, "control"), **dict.fromkeys(texts, "user_defined")}
        surfaces = [
            b""
            if name in silent
            else name.encode("utf-8")
            if name in texts
            else b"".join(_bytes_of(character, value) for character in name)
            for name in ids.pieces
        ]
        super().__init__(
            "byte_level_bpe",
            [Piece(name, 0.0, types.get(name, "normal")) for name in ids.pieces],
            [surface.decode("utf-8", "replace") for surface in surfaces],
            SpecialPieces(*(place[name] for name in (ids.pad, ids.start, ids.end, ids.unknown))),
            surfaces,
            ids.added,
        )
        self._tokens_of_word = functools.lru_cache(_CACHED_WORDS)(self._merge)

    @classmethod
    def from_vocabulary(
        cls,
        vocabulary: Mapping[str, int] | str | os.PathLike[str],
        merges: Sequence[str] | str | os.PathLike[str],
        **special: Any,
    ) -> ByteLevelBPETokenizer:
        """Makes a tokenizer of the two files that checkpoints have.

        Args:
            vocabulary: The id of each piece, or the file `vocab.json` with them.
            merges: Pairs of pieces with a space between them, the best first, or the file
                `merges.txt` with one a line.
            **special: `pad`, `start`, `end`, `unknown`, `controls` and `added` of `PieceIds`.

        Returns:
            The tokenizer.

        Raises:
            ValueError: If a file, or what is given instead, holds something else.
        """
        if isinstance(vocabulary, str | os.PathLike):
            vocabulary = read_json(to_path(vocabulary))
        ids = PieceIds.of_mapping(vocabulary, **special)  # type: ignore[arg-type]
        return cls(ids, merges_of(merges))

    @property
    def normalization(self) -> str:
        """Nothing is done to the characters."""
        return "none"

    @property
    def keeps_outer_space(self) -> bool:
        """Yes: a word is another one with a space before it."""
        return True

    def _split(self, texts: list[str]) -> list[list[int]]:
        words = word_pattern()
        return [
            [token for word in words.findall(text) for token in self._tokens_of(word)]
            for text in texts
        ]

    def _tokens_of(self, word: str) -> Iterable[int]:
        if len(word) <= LONGEST_WORD:
            return self._tokens_of_word(word)
        # They are not kept: no word comes twice that has so many characters.
        return itertools.chain.from_iterable(map(self._merge, parts_of_word(word)))

    def _merge(self, word: str) -> tuple[int, ...]:
        """The ids of a word."""
        alphabet = byte_alphabet()
        symbols = [alphabet[value] for value in word.encode("utf-8")]
        before = list(range(-1, len(symbols) - 1))
        after = list(range(1, len(symbols) + 1))
        agenda: list[tuple[int, int, str, str]] = []

        def offer(left: int) -> None:
            if left >= 0 and after[left] < len(symbols):
                pair = symbols[left], symbols[after[left]]
                if pair in self._ranks:
                    heapq.heappush(agenda, (self._ranks[pair], left, *pair))

        for left in range(len(symbols) - 1):
            offer(left)
        while agenda:
            _, left, first, second = heapq.heappop(agenda)
            right = after[left]
            if symbols[left] != first or right >= len(symbols) or symbols[right] != second:
                continue
            symbols[left], symbols[right] = first + second, ""
            after[left] = after[right]
            if after[left] < len(symbols):
                before[after[left]] = left
            offer(before[left])
            offer(left)
        return tuple(self._place.get(name, self.unknown_id) for name in symbols if name)

    def _sampler(self, sampling: SubwordSampling) -> Sampler:
        raise ArgumentError(
            "Other pieces are sampled of SentencePiece vocabularies only.",
            "no sampling with a byte-level one",
            value=sampling,
        )

    @property
    def _state(self) -> tuple[Any, ...]:
        return self.ids, self.merges

    def to_bytes(self) -> bytes:
        """The ids and the merges as JSON."""
        merges = [" ".join(pair) for pair in self.merges]
        return document(NAME, {"ids": self.ids.to_dict(), "merges": merges})

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> ByteLevelBPETokenizer:
        """The tokenizer whose document has these values."""
        merges = [tuple(line.split(" ")) for line in fields["merges"]]
        return cls(PieceIds.from_dict(fields["ids"]), merges)  # type: ignore[arg-type]


def merges_of(merges: Sequence[str] | str | os.PathLike[str]) -> list[tuple[str, str]]:
    """The pairs of pieces that are merged, the best first.

    Args:
        merges: Lines, or the file `merges.txt` with them.

    Returns:
        The pairs.

    Raises:
        ValueError: If it is something else.
    """
    if isinstance(merges, str | os.PathLike):
        lines = read_text(merges).split("\n")
        merges = [line for line in lines[lines[0].startswith("#version") :] if line]
    if isinstance(merges, bytes) or not isinstance(merges, Iterable):
        raise ArgumentError(expected="merges as lines of two pieces", received=describe(merges))
    pairs = [tuple(str(line).split(" ")) for line in merges]
    if wrong := next((pair for pair in pairs if len(pair) != 2), None):
        raise ArgumentError(
            "A merge is of two pieces.",
            "lines of two, with a space between them",
            value=" ".join(wrong),
        )
    return pairs  # type: ignore[return-value]


@functools.cache
def byte_alphabet() -> tuple[str, ...]:
    """The visible character that stands for each byte in the names of pieces.

    Bytes that are visible in Latin-1 stand for themselves; the others are U+0100 and so on, in
    their order.

    Returns:
        256 characters.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return tuple(chr(value if value in visible else next(others)) for value in range(256))


@functools.cache
def word_classes() -> dict[str, tuple[tuple[int, int], ...]]:
    """The letters (L) and the numbers (N) of Unicode, as ranges of code points."""
    found = {}
    for name in "LN":
        codes = (
            code for code in range(0x110000) if unicodedata.category(chr(code)).startswith(name)
        )
        found[name] = tuple(_ranges(codes))
    return found


@functools.cache
def word_pattern() -> re.Pattern[str]:
    """What texts are divided into: endings, letters, numbers, others, spaces."""
    letters, numbers = (
        "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
        for ranges in word_classes().values()
    )
    return re.compile(
        f"{'|'.join(ENDINGS)}| ?[{letters}]+| ?[{numbers}]+| ?[^{SPACES}{letters}{numbers}]+"
        f"|[{SPACES}]+(?![^{SPACES}])|[{SPACES}]+"
    )


def _ranges(codes: Iterator[int]) -> Iterator[tuple[int, int]]:
    start = last = next(codes)
    for code in codes:
        if code != last + 1:
            yield start, last
            start = code
        last = code
    yield start, last


def _bytes_of(character: str, value: Mapping[str, int]) -> bytes:
    # A name may hold what stands for no byte, such as one that was added by hand.
    found = value.get(character)
    return character.encode("utf-8") if found is None else bytes([found])
