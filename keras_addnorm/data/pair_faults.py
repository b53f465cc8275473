"""What can be wrong with a pair: the ONE table of faults, and what is usual in a corpus."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

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


def _has_doubled_quotes(text: str) -> bool:
    """Whether a text is quoted as in CSV, with quotation marks of its own that are doubled."""
    if len(text) < 4 or not (text.startswith('"') and text.endswith('"')):
        return False
    inside = text[1:-1]
    return '""' in inside and '"' not in inside.replace('""', "")


@dataclass(frozen=True)
class PairFeatures:
    """What is compared between pairs.

    Attributes:
        scripts: The scripts of both sides.
        ratio: The logarithm of the ratio of lengths, in steps; `None` for short texts.
    """

    scripts: tuple[str, str]
    ratio: int | None


def pair_features(source: str, target: str) -> PairFeatures:
    """Measures a pair."""
    ratio = None
    if source and target and max(len(source), len(target)) >= _LENGTHS_FROM:
        ratio = round(math.log(len(target) / len(source)) * _STEPS_OF_RATIO)
    return PairFeatures((script_of(source), script_of(target)), ratio)


@dataclass(frozen=True)
class CorpusStatistics:
    """What is usual in a corpus.

    Attributes:
        scripts: The scripts of each side that many texts have, the most frequent first.
        ratio: The median ratio of lengths, as `PairFeatures` has it.
    """

    scripts: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    ratio: int = 0

    @classmethod
    def of(cls, counts: Counter[PairFeatures]) -> CorpusStatistics:
        """What is usual among the pairs that were looked at."""
        sides = []
        for side in (0, 1):
            scripts: Counter[str] = Counter()
            for features, count in counts.items():
                if features.scripts[side]:
                    scripts[features.scripts[side]] += count
            least = _USUAL_SHARE * scripts.total()
            sides.append(tuple(name for name, count in scripts.most_common() if count >= least))
        return cls((sides[0], sides[1]), _median_ratio(counts))

    def has_wrong_script(self, features: PairFeatures) -> bool:
        """Whether a side is in a script that few texts have."""
        return any(
            script and script not in usual
            for script, usual in zip(features.scripts, self.scripts, strict=True)
        )

    def has_unlike_lengths(self, features: PairFeatures) -> bool:
        """Whether a side is three times as long as usual for the other, or a third."""
        if features.ratio is None:
            return False
        return abs(features.ratio - self.ratio) > math.log(_MOST_RATIO) * _STEPS_OF_RATIO


def _median_ratio(counts: Counter[PairFeatures]) -> int:
    ratios: Counter[int] = Counter()
    for features, count in counts.items():
        if features.ratio is not None:
            ratios[features.ratio] += count
    half, seen = ratios.total() / 2, 0
    for ratio, count in sorted(ratios.items()):
        seen += count
        if seen >= half:
            return ratio
    return 0


class SeenPairs:
    """The pairs that have come before, as hashes of eight bytes.

    The latest are a set, which is fast to add to; the earlier ones are sorted arrays, each at least
    twice as long as the next one, which are small.
    """

    _LATEST = 1 << 17

    def __init__(self) -> None:
        self._latest: set[int] = set()
        self._earlier: list[np.ndarray] = []

    def add(self, pair: tuple[str, str]) -> bool:
        """Remembers a pair; says whether the same one has come before."""
        key = hash(pair)
        if key in self._latest or any(_holds(some, key) for some in self._earlier):
            return True
        self._latest.add(key)
        if len(self._latest) >= self._LATEST:
            self._put_away()
        return False

    def _put_away(self) -> None:
        some = np.fromiter(self._latest, np.int64, len(self._latest))
        self._latest = set()
        while self._earlier and len(self._earlier[-1]) < 2 * len(some):
            some = np.concatenate([self._earlier.pop(), some])
        some.sort()
        self._earlier.append(some)


def _holds(rising: np.ndarray, key: int) -> bool:
    place = int(rising.searchsorted(key))
    return place < len(rising) and int(rising[place]) == key


@dataclass(frozen=True)
class OtherPairs:
    """What a pair is compared with.

    Attributes:
        held_out: The validation and test pairs.
        seen: The pairs before it: the texts themselves need not be in memory.
        is_known_as_repeated: Whether it has come before, where somebody else remembers that.
    """

    held_out: HeldOutTexts = field(default_factory=lambda: HeldOutTexts(()))
    seen: SeenPairs = field(default_factory=SeenPairs)
    is_known_as_repeated: bool | None = None

    def knowing(self, is_repeated: bool) -> OtherPairs:
        """The same others, of a pair of which it is known whether it has come before."""
        return OtherPairs(self.held_out, self.seen, is_repeated)

    def is_repeated(self, pair: tuple[str, str]) -> bool:
        """Whether the same pair has come before; it is remembered."""
        if self.is_known_as_repeated is not None:
            return self.is_known_as_repeated
        return self.seen.add(pair)


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
    has: Callable[[tuple[str, str], OtherPairs], bool]
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
    has: Callable[[CorpusStatistics, PairFeatures], bool]
    is_certain: bool = False
    spoils: bool = True


# The ONE table of faults, by the names that reports and flags have.
FAULTS: dict[str, Fault | UnusualFault] = {
    "duplicates": Fault(
        "the same pair has come before", lambda pair, others: others.is_repeated(pair)
    ),
    "copies": Fault(
        "both sides are the same text",
        lambda pair, others: bool(pair[0].strip()) and pair[0] == pair[1],
    ),
    "broken_text": Fault(
        "broken characters: U+FFFD, or UTF-8 that was read as Latin-1",
        lambda pair, others: any(map(_BROKEN.search, pair)),
    ),
    "invisible": Fault(
        "invisible characters, which the tokenizer leaves out",
        lambda pair, others: any(map(has_invisible, pair)),
        spoils=False,
    ),
    "in_held_out": Fault(
        "the pair is in a validation or test set, too",
        lambda pair, others: others.held_out.has(pair),
    ),
    "near_held_out": Fault(
        "a side is one of a validation or test set, but for a word",
        lambda pair, others: not others.held_out.has(pair) and others.held_out.has_near(pair),
        is_certain=False,
    ),
    "doubled_quotes": Fault(
        'quoted as in CSV, "so ""doubled""": save the table as .csv, which is read so',
        lambda pair, others: any(map(_has_doubled_quotes, pair)),
        is_certain=False,
    ),
    "unlike_lengths": UnusualFault(
        "a side is three times as long as usual for the other", CorpusStatistics.has_unlike_lengths
    ),
    "wrong_script": UnusualFault(
        "a side is in an unusual script", CorpusStatistics.has_wrong_script
    ),
}


class FaultCounter:
    """Counts the faults of a corpus in one pass.

    Args:
        others: What the pairs are compared with.
    """

    def __init__(self, others: OtherPairs) -> None:
        self.features: Counter[PairFeatures] = Counter()
        self.first: dict[str, tuple[str, tuple[str, str]]] = {}
        self._others = others
        self._counts: Counter[str] = Counter()
        self._first_with: dict[PairFeatures, tuple[str, tuple[str, str]]] = {}

    def add(self, pair: tuple[str, str], place: str = "", others: OtherPairs | None = None) -> None:
        """Looks at a pair.

        Args:
            pair: The texts.
            place: Where it stands.
            others: What this one is compared with, if that is not the same for all.
        """
        others = others or self._others
        features = pair_features(*pair)
        self.features[features] += 1
        self._first_with.setdefault(features, (place, pair))
        for name, fault in FAULTS.items():
            if isinstance(fault, Fault) and fault.has(pair, others):
                self._counts[name] += 1
                self.first.setdefault(name, (place, pair))

    def add_all(self, later: FaultCounter) -> None:
        """Adds what another one has counted of the pairs behind those of this one."""
        self.features.update(later.features)
        self._counts.update(later._counts)
        for name, found in later.first.items():
            self.first.setdefault(name, found)
        for features, pair in later._first_with.items():
            self._first_with.setdefault(features, pair)

    def watch(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """The same pairs, each of which is looked at when it is read."""
        for pair in pairs:
            self.add(pair)
            yield pair

    def counts(self) -> dict[str, int]:
        """The number of pairs with each fault, in the order of the table.

        Returns:
            The counts; `first` has the place and the texts of the first pair with each fault.
        """
        statistics = CorpusStatistics.of(self.features)
        counts = {}
        for name, fault in FAULTS.items():
            if isinstance(fault, Fault):
                counts[name] = self._counts[name]
                continue
            found = [features for features in self.features if fault.has(statistics, features)]
            counts[name] = sum(self.features[features] for features in found)
            if found:
                self.first[name] = self._first_with[found[0]]
        return counts


def spoiling_faults(
    pair: tuple[str, str], others: OtherPairs, statistics: CorpusStatistics
) -> list[str]:
    """The names of the faults for which a clean copy has no such pair, in the order of the table.

    Args:
        pair: The texts.
        others: What it is compared with; the pair is added to those seen.
        statistics: What is usual in the corpus.

    Returns:
        The names.
    """
    features = pair_features(*pair)
    return [
        name
        for name, fault in FAULTS.items()
        if fault.spoils
        and (
            fault.has(pair, others) if isinstance(fault, Fault) else fault.has(statistics, features)
        )
    ]
