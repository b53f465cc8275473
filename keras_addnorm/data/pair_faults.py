"""What can be wrong with a pair: the ONE table of faults, and what is usual in a corpus."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from keras_addnorm.data.characters import has_invisible
from keras_addnorm.data.overlap import HeldOutTexts
from keras_addnorm.data.scripts import script_of

# What a decoder of text puts where bytes were not of the encoding; UTF-8 that was read as Latin-1.
_BROKEN = re.compile("\ufffd|\u00c3[\u0080-\u00bf]|\u00e2\u20ac|\u00c2[\u00a0-\u00bf]")
# The lengths of short texts differ by chance.
_LENGTHS_FROM = 20
_MOST_RATIO = 3.0
_STEPS_OF_RATIO = 10  # in a factor of e
# A script that this share of the texts has is usual.
_USUAL_SHARE = 0.05


@dataclass(frozen=True)
class Look:
    """What is compared between pairs.

    Attributes:
        scripts: The scripts of both sides.
        ratio: The logarithm of the ratio of lengths, in steps; `None` for short texts.
    """

    scripts: tuple[str, str]
    ratio: int | None


def look_at(source: str, target: str) -> Look:
    """Measures a pair."""
    ratio = None
    if source and target and max(len(source), len(target)) >= _LENGTHS_FROM:
        ratio = round(math.log(len(target) / len(source)) * _STEPS_OF_RATIO)
    return Look((script_of(source), script_of(target)), ratio)


@dataclass(frozen=True)
class Usual:
    """What is usual in a corpus.

    Attributes:
        scripts: The scripts of each side that many texts have, the most frequent first.
        ratio: The median ratio of lengths, as `Look` has it.
    """

    scripts: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    ratio: int = 0

    @classmethod
    def of(cls, looks: Counter[Look]) -> Usual:
        """What is usual among the pairs that were looked at."""
        sides = []
        for side in (0, 1):
            scripts: Counter[str] = Counter()
            for look, count in looks.items():
                if look.scripts[side]:
                    scripts[look.scripts[side]] += count
            least = _USUAL_SHARE * scripts.total()
            sides.append(tuple(name for name, count in scripts.most_common() if count >= least))
        return cls((sides[0], sides[1]), _median_ratio(looks))

    def has_wrong_script(self, look: Look) -> bool:
        """Whether a side is in a script that few texts have."""
        return any(
            script and script not in usual
            for script, usual in zip(look.scripts, self.scripts, strict=True)
        )

    def has_unlike_lengths(self, look: Look) -> bool:
        """Whether a side is three times as long as usual for the other, or a third."""
        if look.ratio is None:
            return False
        return abs(look.ratio - self.ratio) > math.log(_MOST_RATIO) * _STEPS_OF_RATIO


def _median_ratio(looks: Counter[Look]) -> int:
    ratios: Counter[int] = Counter()
    for look, count in looks.items():
        if look.ratio is not None:
            ratios[look.ratio] += count
    half, seen = ratios.total() / 2, 0
    for ratio, count in sorted(ratios.items()):
        seen += count
        if seen >= half:
            return ratio
    return 0


@dataclass(frozen=True)
class Known:
    """What a pair is compared with.

    Attributes:
        held_out: The validation and test pairs.
        seen: Hashes of the pairs before it: the texts themselves need not be in memory.
    """

    held_out: HeldOutTexts = field(default_factory=lambda: HeldOutTexts(()))
    seen: set[int] = field(default_factory=set)

    def is_repeated(self, pair: tuple[str, str]) -> bool:
        """Whether the same pair has come before; it is remembered."""
        key = hash(pair)
        if key in self.seen:
            return True
        self.seen.add(key)
        return False


@dataclass(frozen=True)
class Fault:
    """One thing that can be wrong with a pair by itself, or beside others.

    Attributes:
        says: What it is, for people.
        has: Whether a pair has it.
        is_certain: Whether a strict training ends over it; otherwise it is a hint.
        spoils: Whether a clean copy of the corpus is better without the pair.
    """

    says: str
    has: Callable[[tuple[str, str], Known], bool]
    is_certain: bool = True
    spoils: bool = True


@dataclass(frozen=True)
class UnusualFault:
    """One thing that is unusual in the corpus, which is known when all of it has been seen.

    Attributes:
        says: What it is, for people.
        has: Whether a pair that looks so has it.
        is_certain: No: these are hints.
        spoils: Whether a clean copy of the corpus is better without the pair.
    """

    says: str
    has: Callable[[Usual, Look], bool]
    is_certain: bool = False
    spoils: bool = True


# The ONE table of faults, by the names that reports and flags have.
FAULTS: dict[str, Fault | UnusualFault] = {
    "duplicates": Fault(
        "the same pair has come before", lambda pair, known: known.is_repeated(pair)
    ),
    "copies": Fault(
        "both sides are the same text",
        lambda pair, known: bool(pair[0].strip()) and pair[0] == pair[1],
    ),
    "broken_text": Fault(
        "broken characters: U+FFFD, or UTF-8 that was read as Latin-1",
        lambda pair, known: any(map(_BROKEN.search, pair)),
    ),
    "invisible": Fault(
        "invisible characters, which the tokenizer leaves out",
        lambda pair, known: any(map(has_invisible, pair)),
        spoils=False,
    ),
    "in_held_out": Fault(
        "the pair is in a validation or test set, too",
        lambda pair, known: known.held_out.has(pair),
    ),
    "near_held_out": Fault(
        "a side is one of a validation or test set, but for a word",
        lambda pair, known: not known.held_out.has(pair) and known.held_out.has_near(pair),
        is_certain=False,
    ),
    "unlike_lengths": UnusualFault(
        "a side is three times as long as usual for the other", Usual.has_unlike_lengths
    ),
    "wrong_script": UnusualFault("a side is in an unusual script", Usual.has_wrong_script),
}


class FaultCounter:
    """Counts the faults of a corpus in one pass.

    Args:
        known: What the pairs are compared with.
    """

    def __init__(self, known: Known) -> None:
        self.looks: Counter[Look] = Counter()
        self.first: dict[str, tuple[str, tuple[str, str]]] = {}
        self._known = known
        self._counts: Counter[str] = Counter()
        self._first_looks: dict[Look, tuple[str, tuple[str, str]]] = {}

    def add(self, pair: tuple[str, str], place: str = "") -> None:
        """Looks at a pair.

        Args:
            pair: The texts.
            place: Where it stands.
        """
        look = look_at(*pair)
        self.looks[look] += 1
        self._first_looks.setdefault(look, (place, pair))
        for name, fault in FAULTS.items():
            if isinstance(fault, Fault) and fault.has(pair, self._known):
                self._counts[name] += 1
                self.first.setdefault(name, (place, pair))

    def counts(self) -> dict[str, int]:
        """The number of pairs with each fault, in the order of the table.

        Returns:
            The counts; `first` has the place and the texts of the first pair with each fault.
        """
        usual = Usual.of(self.looks)
        counts = {}
        for name, fault in FAULTS.items():
            if isinstance(fault, Fault):
                counts[name] = self._counts[name]
                continue
            looks = [look for look in self.looks if fault.has(usual, look)]
            counts[name] = sum(self.looks[look] for look in looks)
            if looks:
                self.first[name] = self._first_looks[looks[0]]
        return counts


def spoiling_faults(pair: tuple[str, str], known: Known, usual: Usual) -> list[str]:
    """The names of the faults for which a clean copy has no such pair, in the order of the table.

    Args:
        pair: The texts.
        known: What it is compared with; the pair is added to those seen.
        usual: What is usual in the corpus.

    Returns:
        The names.
    """
    look = look_at(*pair)
    return [
        name
        for name, fault in FAULTS.items()
        if fault.spoils
        and (fault.has(pair, known) if isinstance(fault, Fault) else fault.has(usual, look))
    ]
