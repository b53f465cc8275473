"""Words split into other pieces each time: BPE-dropout and sub-word regularisation.

SentencePiece has both, but from 0.2.2 on the same seed samples other pieces in each process. A
training that goes on in a new process, and processes that train together, need the same ones.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from keras_addnorm.data.vocabulary import SPACE_MARK, Piece

Ids = tuple[int, ...]
Draw = Callable[[], float]


@dataclass(frozen=True)
class SubwordSampling:
    """Splits a text into other pieces each time it is read: a regulariser for small corpora.

    With a BPE vocabulary this is BPE-dropout: each merge is left out with probability `alpha`. As
    in SentencePiece, a merge that was left out is not tried again, so the same number splits words
    finer than in the paper, which takes 0.1: 0.05 makes captions of Multi30k a fifth longer.

    With a unigram vocabulary a segmentation is drawn with a probability in proportion to its own,
    to the power of `alpha`: 0.1 strays far, 1 little. The paper takes 0.1 to 0.5.

    Args:
        alpha: Above 0; below 1 with BPE.

    Raises:
        ValueError: If `alpha` is not above 0 and finite.

    Example:
        ```python
        from keras_addnorm.data import SubwordSampling, Tokenizer

        tokenizer = Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)
        first, second = (
            tokenizer.sample_batch(["a small house"], SubwordSampling(0.1), seed)[0]
            for seed in (1, 2)
        )
        assert tokenizer.decode(first) == tokenizer.decode(second) == "a small house"
        ```

    Reference:
        Provilkov et al. 2020, "BPE-Dropout", arXiv:1910.13267; Kudo 2018, "Subword
        Regularization", arXiv:1804.10959.
    """

    alpha: float

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise ValueError(
                "Expected SubwordSampling(alpha) with alpha above 0 and finite; received "
                f"{self.alpha!r}. To always split alike, pass no SubwordSampling."
            )


class Sampler:
    """Draws segmentations of texts that are split into pieces already, word by word.

    Words with anything but normal pieces (unknown characters, for example) stay as they are.

    Args:
        pieces: The vocabulary.
        kind: `"unigram"` or `"bpe"`.
        sampling: How far to stray.
    """

    def __init__(self, pieces: Sequence[Piece], kind: str, sampling: SubwordSampling) -> None:
        self._texts = [piece.text if piece.type == "normal" else None for piece in pieces]
        self._starts = [piece.text.startswith(SPACE_MARK) for piece in pieces]
        vocabulary = {
            piece.text: (index, piece.score)
            for index, piece in enumerate(pieces)
            if piece.type == "normal"
        }
        make = _BpeDropout if kind == "bpe" else _UnigramWords
        self._words: _BpeDropout | _UnigramWords = make(vocabulary, sampling.alpha)

    def sample(self, rows: Sequence[Sequence[int]], seed: int) -> list[list[int]]:
        """Draws a segmentation of each text.

        Args:
            rows: The ids of each text, as `Tokenizer.encode` splits it.
            seed: The same seed gives the same pieces.

        Returns:
            The ids of each text.
        """
        draw = random.Random(seed).random
        return [
            [token for word in self._split(row) for token in self._drawn(word, draw)]
            for row in rows
        ]

    def _split(self, row: Sequence[int]) -> Iterator[Ids]:
        starts = [place for place, token in enumerate(row) if self._starts[token]]
        places = [*([] if starts[:1] == [0] else [0]), *starts, len(row)]
        return (tuple(row[start:end]) for start, end in itertools.pairwise(places))

    def _drawn(self, word: Ids, draw: Draw) -> Ids:
        texts = [self._texts[token] for token in word]
        if None in texts:
            return word
        return self._words.drawn("".join(texts), word, draw)  # type: ignore[arg-type]


class _BpeDropout:
    """Leaves merges out.

    Args:
        vocabulary: Id and score of each piece; of two merges, the one with the higher score goes
            first.
        alpha: The probability to leave a merge out.
    """

    def __init__(self, vocabulary: dict[str, tuple[int, float]], alpha: float) -> None:
        self._vocabulary = vocabulary
        self._alpha = alpha
        self._log_kept = math.log1p(-alpha)

    def drawn(self, word: str, plain: Ids, draw: Draw) -> Ids:
        # How many merges go well before one is left out. Mostly that is more than there are.
        before = math.log(1.0 - draw()) / self._log_kept
        if before >= len(word) - len(plain):
            return plain
        merges = itertools.chain(
            itertools.repeat(True, int(before)), [False], iter(lambda: draw() >= self._alpha, None)
        )
        found = [self._vocabulary.get(piece) for piece in self.merged(word, merges)]
        if None in found:
            return plain
        return tuple(token for token, _ in found)  # type: ignore[misc]

    def merged(self, word: str, merges: Iterator[bool]) -> list[str]:
        """Merges the characters of a word, the best pair first, where `merges` says so."""
        symbols = list(word)
        before, behind = list(range(-1, len(word) - 1)), list(range(1, len(word) + 1))
        agenda: list[tuple[float, int, str]] = []

        def offer(left: int, right: int) -> None:
            if left >= 0 and right < len(symbols):
                pair = symbols[left] + symbols[right]
                if pair in self._vocabulary:
                    heapq.heappush(agenda, (-self._vocabulary[pair][1], left, pair))

        for left in range(len(word) - 1):
            offer(left, left + 1)
        while agenda:
            _, left, pair = heapq.heappop(agenda)
            right = behind[left]
            is_there = symbols[left] and right < len(symbols)
            if not is_there or symbols[left] + symbols[right] != pair or not next(merges):
                continue
            symbols[left], symbols[right] = pair, ""
            behind[left] = behind[right]
            if behind[left] < len(symbols):
                before[behind[left]] = left
            offer(before[left], left)
            offer(left, behind[left])
        return [symbol for symbol in symbols if symbol]


class _Ending(NamedTuple):
    """The pieces that a word's first characters can end with."""

    tokens: list[int]
    starts: list[int]
    cumulated: list[float]  # The sums of their probabilities.


class _UnigramWords:
    """Draws segmentations in proportion to powers of their probabilities.

    Args:
        vocabulary: Id and log-probability of each piece.
        alpha: The exponent.
    """

    def __init__(self, vocabulary: dict[str, tuple[int, float]], alpha: float) -> None:
        self._vocabulary = vocabulary
        self._alpha = alpha
        self._longest = max(map(len, vocabulary), default=0)
        self._endings: dict[str, list[_Ending]] = {}

    def drawn(self, word: str, plain: Ids, draw: Draw) -> Ids:
        endings = self._endings.get(word)
        if endings is None:
            endings = self._endings[word] = self._all_endings(word)
        tokens = []
        end = len(word)
        while end:
            ending = endings[end]
            chosen = bisect.bisect_right(ending.cumulated, draw() * ending.cumulated[-1])
            tokens.append(ending.tokens[chosen])
            end = ending.starts[chosen]
        return tuple(reversed(tokens))

    def _all_endings(self, word: str) -> list[_Ending]:
        """For each number of characters, how they can end; forward through all segmentations."""
        totals = [0.0]  # Logarithms: sums over all segmentations of the first characters.
        endings = [_Ending([], [], [])]
        for end in range(1, len(word) + 1):
            tokens, starts, logs = [], [], []
            for start in range(max(0, end - self._longest), end):
                token, score = self._vocabulary.get(word[start:end], (0, -math.inf))
                log = totals[start] + self._alpha * score
                if log > -math.inf:
                    tokens.append(token)
                    starts.append(start)
                    logs.append(log)
            best = max(logs, default=-math.inf)
            cumulated = list(itertools.accumulate(math.exp(log - best) for log in logs))
            totals.append(best + math.log(cumulated[-1]) if logs else -math.inf)
            endings.append(_Ending(tokens, starts, cumulated))
        return endings
