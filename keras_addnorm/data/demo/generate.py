"""Generates sentence pairs and keeps held-out sentences away from training."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from keras_addnorm.basics.argument_checks import require_int
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.data.demo.english import English
from keras_addnorm.data.demo.french import French
from keras_addnorm.data.demo.german import German
from keras_addnorm.data.demo.grammar import Grammar
from keras_addnorm.data.demo.spanish import Spanish
from keras_addnorm.data.demo.templates import TEMPLATES

_ENGLISH = English()
# All target languages.
TARGETS: dict[str, Grammar] = {
    grammar.language: grammar for grammar in (German(), French(), Spanish())
}
SPLITS = ("train", "validation", "test")
# One sentence in sixteen is for validation and one for test, whatever the seed and the sizes.
_BUCKETS = 16
_HELD_OUT = {0: "validation", 1: "test"}


@dataclass(frozen=True)
class Pair:
    """A sentence, its translation and the template of both."""

    source: str
    target: str
    template: str


def target_grammar(language: str) -> Grammar:
    """Returns the grammar of a target language; raises `ValueError` if there is none."""
    if not isinstance(language, str) or language not in TARGETS:
        raise ValueError(
            f"The demo set does not speak {language!r}. It translates English into one of "
            f"{', '.join(map(repr, TARGETS))}, or back; choose one of these, for example "
            "'demo/en-de'."
        )
    return TARGETS[language]


def demo_pairs(language: str = "de", *, seed: int = 0) -> Iterator[Pair]:
    """Generates English sentences with their translations, without end and without repetition.

    Args:
        language: The language to translate into: ``"de"``, ``"fr"`` or ``"es"``.
        seed: Seed of the random choices. Equal seeds give equal pairs.

    Yields:
        Pairs, each with a new source sentence.

    Raises:
        ValueError: If the demo set does not speak the language, or the seed is no int.
        ImportError: If Babel or num2words is not installed.

    Example:
        >>> from keras_addnorm.data import demo_pairs
        >>> pair = next(demo_pairs("de", seed=0))
        >>> print(pair.source, "|", pair.target)
        The plane to Ireland takes off at 1:20 AM. | Das Flugzeug nach Irland hebt um 01:20 Uhr ab.
    """
    grammar = target_grammar(language)
    require_int("A seed makes the pairs.", least=0, seed=seed)
    require_extra("demo", "The demo set", "babel", "num2words")
    rng = random.Random(seed)
    names = tuple(TEMPLATES)
    seen: set[str] = set()
    while True:
        name = rng.choice(names)
        slots = TEMPLATES[name](rng)
        source = _ENGLISH.sentence(name, slots)
        if source not in seen:
            seen.add(source)
            yield Pair(source, grammar.sentence(name, slots), name)


def split_of(source: str) -> str:
    """The split that a source sentence belongs to.

    The sentence alone decides (by its SHA-256), so no choice of seed or size can bring a held-out
    sentence into training.

    Args:
        source: The English sentence.

    Returns:
        ``"train"``, ``"validation"`` or ``"test"``.

    Example:
        >>> from keras_addnorm.data.demo import split_of
        >>> split_of("Anna is twenty-one years old and comes from Poland.")
        'train'
    """
    digest = hashlib.sha256(source.encode("utf-8")).digest()
    return _HELD_OUT.get(digest[0] % _BUCKETS, "train")


def demo_splits(
    language: str = "de",
    *,
    train_size: int = 30_000,
    validation_size: int = 1_000,
    test_size: int = 1_000,
    seed: int = 0,
) -> dict[str, list[Pair]]:
    """Generates the splits of a demo set.

    Args:
        language: The language to translate into: ``"de"``, ``"fr"`` or ``"es"``.
        train_size: The number of pairs to train on.
        validation_size: The number of pairs to choose checkpoints by.
        test_size: The number of pairs to measure with.
        seed: Seed of the random choices.

    Returns:
        The pairs of ``"train"``, ``"validation"`` and ``"test"``, in the order of generation.

    Raises:
        ValueError: If the demo set does not speak the language, or a size is negative.

    Example:
        >>> from keras_addnorm.data.demo import demo_splits
        >>> splits = demo_splits("fr", train_size=50, validation_size=3, test_size=2)
        >>> {name: len(pairs) for name, pairs in splits.items()}
        {'train': 50, 'validation': 3, 'test': 2}
    """
    wanted = {"train": train_size, "validation": validation_size, "test": test_size}
    for name, size in wanted.items():
        if size < 0:
            raise ArgumentError(f"{name}_size is a number of pairs, 0 or more.", value=size)
    splits: dict[str, list[Pair]] = {name: [] for name in SPLITS}
    pairs = demo_pairs(language, seed=seed)
    missing = sum(wanted.values())
    while missing:
        pair = next(pairs)
        split = split_of(pair.source)
        if len(splits[split]) < wanted[split]:
            splits[split].append(pair)
            missing -= 1
    check_held_out(splits)
    return splits


def check_held_out(splits: dict[str, list[Pair]]) -> None:
    """Makes sure that no sentence occurs twice, in one split or in two, on either side.

    Args:
        splits: The pairs of each split.

    Raises:
        AssertionError: If a source or a target sentence occurs more than once: a defect of the
            generator, which would make a measured exact match meaningless.
    """
    pairs = list(itertools.chain.from_iterable(splits.values()))
    for side in ("source", "target"):
        sentence, times = next(
            iter(Counter(getattr(pair, side) for pair in pairs).most_common(1)), ("", 0)
        )
        if times > 1:
            raise AssertionError(
                f"Every {side} sentence of the demo set must occur once, but {sentence!r} occurs "
                f"{times} times: a template or a word list gives one sentence for two meanings."
            )


def fingerprint(language: str) -> str:
    """Eight hexadecimal digits that change when templates, word lists or CLDR's names change."""
    sample = itertools.islice(demo_pairs(language), 500)
    text = "\n".join(f"{pair.source}\t{pair.target}" for pair in sample)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:8]
