"""The built-in demo set as sentence pairs, by its name and in any size."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass

from keras_addnorm.basics.argument_checks import require_whole
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.data.demo.generate import SPLITS, TARGETS, Pair, demo_splits, target_grammar
from keras_addnorm.data.open_files import choose_direction
from keras_addnorm.data.pair_sources import PairSource
from keras_addnorm.data.readers import RawPair
from keras_addnorm.data.request import Request
from keras_addnorm.data.translation_set import TranslationSet

_LABEL = "the demo set"


@dataclass(frozen=True)
class DemoSet:
    """The built-in set in one size, as `demo_builder` makes it.

    Attributes:
        language: The language beside English.
        train_size: The number of pairs to train on.
        validation_size: The number of pairs to choose checkpoints by.
        test_size: The number of pairs to measure with.
        seed: Seed of the random choices.
    """

    language: str = "de"
    train_size: int = 30_000
    validation_size: int = 1_000
    test_size: int = 1_000
    seed: int = 0


def demo_builder(
    language: str = "de",
    *,
    train_size: int = 30_000,
    validation_size: int = 1_000,
    test_size: int = 1_000,
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
) -> DemoSet:
    """Makes a demo set of any size, which `load_translation` takes in place of a name.

    Args:
        language: The language beside English: ``"de"``, ``"fr"`` or ``"es"``.
        train_size: The number of pairs to train on.
        validation_size: The number of pairs to choose checkpoints by.
        test_size: The number of pairs to measure with.
        seed: Seed of the random choices. Held-out sentences stay held out under every seed.
        data_dir: Not used: the sentences are made when they are read, and nothing is written.

    Returns:
        The set.

    Raises:
        ImportError: If Babel or num2words is not installed.
        ValueError: If the demo set does not speak the language, or a number does not fit.

    Example:
        >>> from keras_addnorm.data import demo_builder, load_translation
        >>> len(load_translation(demo_builder("fr", train_size=100, test_size=5), split="test"))
        5
    """
    require_extra("demo", "The demo set", "babel", "num2words")
    target_grammar(language)
    require_whole("A set has pairs.", train_size=train_size, validation_size=validation_size)
    require_whole("A set has pairs.", test_size=test_size)
    require_whole("A seed makes the pairs.", least=0, seed=seed)
    return DemoSet(language, train_size, validation_size, test_size, seed)


@dataclass(frozen=True)
class DemoSource(PairSource):
    """A split of a demo set, in one direction.

    Attributes:
        split: The name of the split.
        demo: The set.
        from_english: Whether English is the source language.
    """

    numbers_every_pair = True

    split: str
    demo: DemoSet
    from_english: bool

    @property
    def size(self) -> int:
        """As the set has it."""
        size: int = getattr(self.demo, f"{self.split}_size")
        return size

    def raw_pairs(self) -> Iterator[RawPair]:
        """In the order of generation."""
        for number, pair in enumerate(_generated(self.demo)[self.split], 1):
            texts = (pair.source, pair.target) if self.from_english else (pair.target, pair.source)
            yield RawPair(*texts, number)


# The pairs of a few sets are kept, as a training reads them several times.
@functools.lru_cache(maxsize=4)
def _generated(demo: DemoSet) -> dict[str, list[Pair]]:
    return demo_splits(
        demo.language,
        train_size=demo.train_size,
        validation_size=demo.validation_size,
        test_size=demo.test_size,
        seed=demo.seed,
    )


def open_demo(request: Request) -> TranslationSet:
    """Opens a demo set in the direction that is wanted.

    Args:
        request: What is wanted; its `data` is a `DemoSet` or a name such as `demo/en-de`.

    Returns:
        The pairs.

    Raises:
        ImportError: If Babel or num2words is not installed.
        ValueError: If there is no such set or direction.
    """
    source, target = request.source, request.target
    if isinstance(request.data, DemoSet):
        demo: DemoSet | None = request.data
        languages: tuple[str, ...] = ("en", request.data.language)
    else:
        demo, languages = None, _languages_of_name(request.data)
        if len(languages) > 2:
            source = source or ("de" if target == "en" else "en")
            target = target or ("de" if source == "en" else "en")
    direction = choose_direction(languages, (languages[0], languages[1]), source, target, _LABEL)
    if "en" not in direction:
        raise ValueError(
            f"One side of {_LABEL} is English; received source={source!r}, target={target!r}."
        )
    demo = demo or demo_builder(next(filter(TARGETS.get, direction)))
    splits = [DemoSource(split, demo, direction[0] == "en") for split in SPLITS]
    return TranslationSet.of(request, [one for one in splits if one.size], direction, _LABEL)


def _languages_of_name(name: str) -> tuple[str, ...]:
    pair = tuple(name.split("/", 1)[1].split("-")) if "/" in name else ()
    if pair and (len(pair) != 2 or "en" not in pair or not {*pair} < {"en", *TARGETS}):
        known = ", ".join(f"'demo/en-{language}'" for language in TARGETS)
        raise ValueError(
            f"There is no demo set {name!r}. There are {known}, and each the other way round "
            "('demo/de-en')."
        )
    return pair or ("en", *TARGETS)
