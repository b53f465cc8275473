"""Word alignments as links between the pieces of tokenizers, and as a part of training batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_addnorm.alignment import align
from keras_addnorm.alignment.pharaoh import checked_links
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data.base_tokenizer import BaseTokenizer
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.data.text_format import BoundFormat
from keras_addnorm.data.tokenizer_pair import TokenizerPair

# Texts that are tokenised at once, so that a corpus is never in memory as text.
_TEXTS_AT_ONCE = 10_000
_NO_LINKS = np.zeros((0, 2), np.int32)
# In place of an unknown piece, whose own text has spaces around it.
_UNKNOWN = b"?"


@dataclass(frozen=True)
class PieceLinks:
    """The links of all sentence pairs of a corpus, one after the other.

    Attributes:
        places: `(links, 2)` int32: positions among the tokens of source and target.
        offsets: `(pairs + 1,)` int64.
    """

    places: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(
        cls, links: Iterable[Any], source_lengths: np.ndarray, target_lengths: np.ndarray
    ) -> PieceLinks:
        """Takes the links of each pair; those that are outside of it are refused."""
        rows = checked_links(links)
        if len(rows) != len(source_lengths):
            raise ArgumentError(
                "The alignments do not belong to the sentence pairs.",
                f"links of {len(source_lengths):,} pairs, one row a pair",
                "Align these very pairs, in this order.",
                received=f"links of {len(rows):,}",
            )
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        places = np.concatenate([_NO_LINKS, *rows])
        pair = np.repeat(np.arange(len(rows)), np.diff(offsets))
        limits = np.stack([source_lengths, target_lengths], 1)[pair]
        wrong = np.flatnonzero(((places < 0) | (places >= limits)).any(1))
        if len(wrong):
            raise _outside(int(pair[wrong[0]]), places[wrong[0]], limits[wrong[0]], "pieces")
        return cls(places, offsets)

    def weights(
        self, members: np.ndarray, shape: tuple[int, int], shifts: tuple[int, int]
    ) -> np.ndarray:
        """Lays out the links of pairs, a row of the sum 1 for each target token that has any.

        Args:
            members: The pairs, one a row of the batch.
            shape: Rows and length of the batch.
            shifts: Where the tokens begin in a row of the source and in one of the labels.

        Returns:
            `(B, T, S)` float32, zeros where nothing is linked.
        """
        weights = np.zeros((*shape, shape[1]), np.float32)
        sizes = self.offsets[members + 1] - self.offsets[members]
        row = np.repeat(np.arange(len(members)), sizes)
        start = np.repeat(self.offsets[members] - (np.cumsum(sizes) - sizes), sizes)
        places = self.places[start + np.arange(len(row))]
        weights[row, places[:, 1] + shifts[1], places[:, 0] + shifts[0]] = 1.0
        return weights / np.maximum(weights.sum(-1, keepdims=True), 1.0)


def encode_pairs(
    pairs: Iterable[Any], tokenizers: TokenizerPair, around: BoundFormat
) -> Iterator[tuple[tuple[str, str], tuple[list[int], list[int]]]]:
    """Tokenises sentence pairs, many texts at once: each pair, and the ids of both sides."""
    texts = string_pairs(pairs)
    while portion := list(itertools.islice(texts, _TEXTS_AT_ONCE)):
        sources, targets = zip(*portion, strict=True)
        encoded = zip(
            around.encode_sources(sources, tokenizers.source),
            tokenizers.target.encode_batch(targets),
            strict=True,
        )
        yield from zip(portion, encoded, strict=True)


def align_pieces(
    pairs: Iterable[Any], tokenizers: BaseTokenizer | TokenizerPair
) -> list[np.ndarray]:
    """Finds which pieces of sentences and of their translations belong together.

    The aligner is `keras_addnorm.alignment.align`.

    Args:
        pairs: Pairs (source text, target text), as for `make_training_dataset`.
        tokenizers: The pair of tokenizers, or one tokenizer for both languages.

    Returns:
        The links of each pair, `(L, 2)` int32: positions among the pieces of source and target.

    Raises:
        TypeError: If an element of `pairs` is not a pair of strings.

    Example:
        >>> from keras_addnorm.data import TokenizerPair, align_pieces
        >>> pairs = [("ab ab", "ab ab"), ("ab", "ab")]
        >>> tokenizers = TokenizerPair.train(pairs, vocabulary_size=7, allow_smaller=True)
        >>> len(align_pieces(pairs, tokenizers))
        2
    """
    tokenizers = TokenizerPair.of(tokenizers)
    around = tokenizers.bound_format
    return align(ids for _, ids in encode_pairs(pairs, tokenizers, around))


def piece_links(
    pairs: Iterable[Any],
    tokenizers: BaseTokenizer | TokenizerPair,
    word_links: Iterable[Any],
) -> list[np.ndarray]:
    """Turns links between words into links between the pieces of tokenizers.

    Each piece of a word is linked with each piece of a word that it is linked with. Words are what
    stands between white space. A pair has no links if a tokenizer gives it another number of words
    than its text has, as a normalisation that changes white space may do.

    Args:
        pairs: Pairs (source text, target text), as for `make_training_dataset`.
        tokenizers: The pair of tokenizers, or one tokenizer for both languages.
        word_links: For each pair its links, as `keras_addnorm.alignment.read_pharaoh` reads them.

    Returns:
        The links of each pair, `(L, 2)` int32: positions among the pieces of source and target.

    Raises:
        TypeError: If an element of `pairs` is not a pair of strings.
        ValueError: If there are more or fewer rows of links than pairs, or a link is outside of
            its pair.

    Example:
        >>> from keras_addnorm.data import ByteTokenizer, piece_links
        >>> links = piece_links([("a", "bc")], ByteTokenizer(), [[(0, 0)]])
        >>> links[0].tolist()
        [[0, 0], [0, 1]]
    """
    tokenizers = TokenizerPair.of(tokenizers)
    around = tokenizers.bound_format
    sides = (_Words(tokenizers.source), _Words(tokenizers.target))
    rows = checked_links(word_links)
    found: list[np.ndarray] = []
    outside: ArgumentError | None = None
    for number, (texts, ids) in enumerate(encode_pairs(pairs, tokenizers, around)):
        if number < len(rows):
            links = rows[number]
            sizes = np.array([len(text.split()) for text in texts])
            wrong = ((links < 0) | (links >= sizes)).any(1)
            if wrong.any():
                # If there are more or fewer lines, that says more.
                outside = outside or _outside(number, links[wrong][0], sizes, "words")
                links = links[~wrong]
            source, target = (
                side.of_pieces(row, int(size))
                for side, row, size in zip(sides, ids, sizes, strict=True)
            )
            linked = np.zeros(sizes + 1, bool)
            linked[links[:, 0], links[:, 1]] = True
            found.append(np.argwhere(linked[source[:, None], target]).astype(np.int32))
        else:
            found.append(_NO_LINKS)
    if len(rows) != len(found):
        raise ArgumentError(
            "The alignments do not belong to the sentence pairs.",
            f"a line for each of {len(found):,} pairs",
            "Align these very pairs, in this order: those that are trained on, without the "
            "validation pairs and without lines that are left out.",
            received=f"{len(rows):,} lines",
        )
    if outside is not None:
        raise outside
    return found


def _outside(pair: int, link: np.ndarray, sizes: np.ndarray, what: str) -> ArgumentError:
    return ArgumentError(
        f"A link of sentence pair {pair + 1:,} is outside of it.",
        f"positions below {int(sizes[0])} in the source and {int(sizes[1])} in the target, its "
        f"{what}",
        "Were the same texts aligned, in the same order?",
        received=f"{int(link[0])}-{int(link[1])}",
    )


class _Words:
    """Says which word each piece of a text belongs to."""

    def __init__(self, tokenizer: BaseTokenizer) -> None:
        self._bytes = list(tokenizer.surface_bytes)
        self._bytes[tokenizer.unknown_id] = _UNKNOWN

    def of_pieces(self, ids: Sequence[int], num_words: int) -> np.ndarray:
        """Returns the number of each piece's word; `num_words`, which none has, where unknown.

        A piece of several words counts to the last one that begins in it, white space alone to
        the word behind it.
        """
        parts = [self._bytes[token] for token in ids]
        nowhere = np.full(len(parts), num_words)
        try:
            text = b"".join(parts).decode("utf-8")
        except UnicodeDecodeError:
            return nowhere
        if len(text.split()) != num_words:
            return nowhere
        is_space = np.array([character.isspace() for character in text], bool)
        begins = ~is_space & np.concatenate([[True], is_space])[:-1]
        word = np.cumsum(begins) - 1
        widths = [len(character.encode()) for character in text]
        of_byte, in_word = np.repeat(word, widths), np.repeat(~is_space, widths)
        ends = np.cumsum([len(part) for part in parts])
        numbers = nowhere
        for index, (part, end) in enumerate(zip(parts, ends, strict=True)):
            if len(part):
                place = slice(end - len(part), end)
                inside = of_byte[place][in_word[place]]
                numbers[index] = inside[-1] if len(inside) else of_byte[end - 1] + 1
        return numbers
