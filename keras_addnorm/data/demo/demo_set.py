"""The built-in demo set as sentence pairs, by its name."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.data.demo.generate import SPLITS, TARGETS, Pair, demo_splits
from keras_addnorm.data.open_files import choose_direction
from keras_addnorm.data.pair_sources import PairSource
from keras_addnorm.data.readers import RawPair
from keras_addnorm.data.request import Request
from keras_addnorm.data.translation_set import TranslationSet

_LABEL = "the demo set"


@dataclass(frozen=True)
class DemoSource(PairSource):
    """A split of the demo set, in one direction.

    Attributes:
        split: The name of the split.
        language: The language beside English.
        from_english: Whether English is the source language.
    """

    numbers_every_pair = True

    split: str
    language: str
    from_english: bool

    @property
    def size(self) -> int:
        """The number of pairs that are generated."""
        return len(_generated(self.language)[self.split])

    def raw_pairs(self) -> Iterator[RawPair]:
        """In the order of generation."""
        for number, pair in enumerate(_generated(self.language)[self.split], 1):
            texts = (pair.source, pair.target) if self.from_english else (pair.target, pair.source)
            yield RawPair(*texts, number)


@functools.lru_cache(maxsize=len(TARGETS))  # A training reads the pairs several times.
def _generated(language: str) -> dict[str, list[Pair]]:
    return demo_splits(language)


def open_demo(request: Request) -> TranslationSet:
    """Opens a demo set in the direction that is wanted.

    Args:
        request: What is wanted; its `data` is a name such as `demo/en-de`.

    Returns:
        The pairs.

    Raises:
        ImportError: If Babel or num2words is not installed.
        ValueError: If there is no such set or direction.
    """
    require_extra("demo", "The demo set", "babel", "num2words")
    source, target = request.source, request.target
    languages = _languages_of_name(request.data)
    if len(languages) > 2:
        source = source or ("de" if target == "en" else "en")
        target = target or ("de" if source == "en" else "en")
    direction = choose_direction(languages, (languages[0], languages[1]), source, target, _LABEL)
    if "en" not in direction:
        raise ArgumentError(f"One side of {_LABEL} is English.", source=source, target=target)
    language = next(filter(TARGETS.get, direction))
    sources = [DemoSource(split, language, direction[0] == "en") for split in SPLITS]
    return TranslationSet.of(request, sources, direction, _LABEL)


def _languages_of_name(name: str) -> tuple[str, ...]:
    pair = tuple(name.split("/", 1)[1].split("-")) if "/" in name else ()
    if pair and (len(pair) != 2 or "en" not in pair or not {*pair} < {"en", *TARGETS}):
        known = ", ".join(f"'demo/en-{language}'" for language in TARGETS)
        raise ValueError(
            f"There is no demo set {name!r}. There are {known}, and each the other way round "
            "('demo/de-en')."
        )
    return pair or ("en", *TARGETS)
