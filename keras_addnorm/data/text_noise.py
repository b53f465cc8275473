"""Noise for training text, to which a model becomes robust: case, typos, punctuation."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from keras_addnorm.basics.argument_checks import is_number, is_whole, require_gain
from keras_addnorm.basics.errors import ArgumentError

_END_PUNCTUATION = ".!?…。！？"
# Words that are not too short to be read with a letter that is wrong.
_WORD = re.compile(r"[^\W\d_]{4,}")
_WORDS_FOR_A_TYPO = 10
_NOISE_WORDS, _NOISE_LETTERS = (2, 5), (1, 4)
# What stands in lines of noise: letters of some scripts, signs, emoji.
_NOISE_RANGES = ((0x21, 0x7E), (0xA1, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x1F600, 0x1F64F))


@dataclass(frozen=True)
class TextNoise:
    """Changes some sentence pairs, each by chance; the same ones each time.

    What is done follows from the seed and the number of the pair alone. Words stay words, so that
    links between the words of a pair hold, but for a mark that stands alone at an end.

    Attributes:
        upper_case: Share of pairs that are written in capitals on both sides.
        title_case: Share of pairs whose words all begin with a capital.
        typos: Share of pairs whose source has wrong letters: two in the other order, one left out
            or twice; in one word, and in one more for each ten words.
        no_end_punctuation: Share of pairs that lose the marks at their ends, where both have some.
        noise_lines: Share of pairs after which a line of random signs follows, which is its own
            translation.
        seed: Of the chances.

    Raises:
        ValueError: If a share is not from 0 to 1, or the seed is no int.

    Example:
        >>> TextNoise(upper_case=1.0, typos=0.0, no_end_punctuation=0.0)(0, "A dog.", "Ein Hund.")
        [('A DOG.', 'EIN HUND.')]
    """

    upper_case: float = 0.07
    title_case: float = 0.05
    typos: float = 0.05
    no_end_punctuation: float = 0.2
    noise_lines: float = 0.0005
    seed: int = 42

    def __post_init__(self) -> None:
        if not is_whole(self.seed):
            raise ArgumentError("Chances follow from a seed.", "an int", seed=self.seed)
        for name, share in self.shares.items():
            if not is_number(share, least=0, most=1):
                raise ArgumentError(
                    "Noise is for a share of the pairs.",
                    f"`{name}` from 0 to 1",
                    value=share,
                )

    @property
    def shares(self) -> dict[str, float]:
        """The share of each kind."""
        names = ("upper_case", "title_case", "typos", "no_end_punctuation", "noise_lines")
        return {name: getattr(self, name) for name in names}

    def scaled(self, factor: float) -> TextNoise:
        """Returns noise with each share times a factor, at most 1."""
        require_gain(factor=factor)
        shares = {name: min(1.0, factor * share) for name, share in self.shares.items()}
        return TextNoise(**shares, seed=self.seed)

    def __call__(self, number: int, source: str, target: str) -> list[tuple[str, str]]:
        """Returns what stands in the place of a pair: the pair, changed or not, or two pairs.

        Args:
            number: The number of the pair.
            source: Its source.
            target: Its target.

        Returns:
            The pairs.
        """
        chance = random.Random(f"{self.seed} {number}")
        # All are drawn, so that one share changes nothing about the others.
        is_chosen = {name: chance.random() < share for name, share in self.shares.items()}
        if is_chosen["no_end_punctuation"]:
            source, target = _without_end_punctuation(source, target)
        if is_chosen["typos"]:
            source = _with_typos(source, chance)
        if is_chosen["upper_case"] or is_chosen["title_case"]:
            change: Callable[[str], str] = str.upper if is_chosen["upper_case"] else _title_case
            source, target = change(source), change(target)
        pairs = [(source, target)]
        if is_chosen["noise_lines"]:
            line = _noise_line(chance)
            pairs.append((line, line))
        return pairs


def _title_case(text: str) -> str:
    # `str.title` has capitals inside of words, too: Don'T.
    return re.sub(r"\S+", lambda word: word[0][0].upper() + word[0][1:], text)


def _without_end_punctuation(source: str, target: str) -> tuple[str, str]:
    shorter = [text.rstrip().rstrip(_END_PUNCTUATION).rstrip() for text in (source, target)]
    both = zip(shorter, (source, target), strict=True)
    has_both = all(short and short != text.rstrip() for short, text in both)
    return (shorter[0], shorter[1]) if has_both else (source, target)


def _with_typos(text: str, chance: random.Random) -> str:
    words = list(_WORD.finditer(text))
    count = min(len(words), 1 + len(words) // _WORDS_FOR_A_TYPO)
    parts: list[str] = []  # from the last one
    end = len(text)
    for word in sorted(chance.sample(words, count), key=lambda one: -one.start()):
        place = word.start() + chance.randrange(len(word[0]) - 1)
        first, second = text[place], text[place + 1]
        wrong = chance.choice((second + first, second, first + first + second))
        parts += [text[place + 2 : end], wrong]
        end = place
    return "".join([text[:end], *reversed(parts)])


def _noise_line(chance: random.Random) -> str:
    def letter() -> str:
        return chr(chance.randint(*chance.choice(_NOISE_RANGES)))

    return " ".join(
        "".join(letter() for _ in range(chance.randint(*_NOISE_LETTERS)))
        for _ in range(chance.randint(*_NOISE_WORDS))
    )
