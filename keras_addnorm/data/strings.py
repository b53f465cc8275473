"""Reads sentences and sentence pairs as Python strings, whatever holds them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from keras_addnorm.basics.errors import ArgumentTypeError

Item = TypeVar("Item")

_TEXTS_AT_ONCE = 1024


def string_pairs(pairs: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Reads pairs of texts as Python strings.

    Args:
        pairs: An iterable of two strings each (bytes are read as UTF-8), or a `tf.data.Dataset`
            of two string scalars.

    Yields:
        The source text and the target text.

    Raises:
        TypeError: If an element is not a pair of strings.
    """
    if isinstance(pairs, Mapping):
        raise TypeError(
            "Expected pairs (source text, target text), of one split. Received a dict of "
            f"{', '.join(map(repr, pairs))}: choose one, as load_translation(..., split='train') "
            "does."
        )
    if isinstance(pairs, str | bytes) or not _is_read_in_turn(pairs):
        raise ArgumentTypeError(
            expected="pairs (source text, target text), in a list", received=describe(pairs)
        )
    for index, pair in enumerate(_elements(pairs)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            # Which of its texts is the source, a row does not say.
            rows = " Read rows with load_translation(rows, source=..., target=...)."
            raise ArgumentTypeError(
                expected="pairs (source text, target text)",
                received=f"{describe(pair)} at position "
                f"{index}.{rows if isinstance(pair, dict) else ''}",
            )
        yield _string(pair[0], index), _string(pair[1], index)


def strings(texts: Iterable[Any]) -> Iterator[str]:
    """Reads texts as Python strings, from any iterable or a `tf.data.Dataset` of scalars."""
    return (_string(text, index) for index, text in enumerate(_elements(texts)))


def sample(items: Iterable[Item], count: int | None) -> list[Item]:
    """Draws items at random, each with the same chance, without knowing how many there are.

    Up to `count` items, or without it, all are taken, in their order. The same items give the same
    sample (reservoir sampling, Algorithm R; Vitter 1985).
    """
    items = iter(items)
    drawn = list(itertools.islice(items, count))
    draw = random.Random(0).randrange
    for number, item in enumerate(items, len(drawn) + 1):
        place = draw(number)
        if place < len(drawn):
            drawn[place] = item
    return drawn


def several_texts(texts: Iterable[Any]) -> Iterable[Any]:
    """Returns texts as they are; a `TypeError` if they are one text, or none at all."""
    if isinstance(texts, str | bytes) or not _is_read_in_turn(texts):
        received = f"one, {describe(texts)}" if isinstance(texts, str | bytes) else describe(texts)
        raise ArgumentTypeError(
            expected="several texts", remedy="Put it in a list: [text].", received=str(received)
        )
    return texts


def several_names(field: str, names: Any) -> tuple[str, ...]:
    """Returns names as a tuple; a `TypeError` if they are no list of strings."""
    is_list = isinstance(names, Iterable) and not isinstance(names, str | bytes)
    found = tuple(names) if is_list else (None,)
    if not all(isinstance(name, str) for name in found):
        raise ArgumentTypeError(expected=f"{field} as a tuple of names", received=describe(names))
    return found  # type: ignore[return-value]


def describe(value: Any) -> str:
    """Names a value's type and shows the value, shortened, for an error message."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:60] + '...'}"


def is_tf_dataset(items: Any) -> bool:
    """Whether items are a `tf.data.Dataset`, by its class: TensorFlow need not be there."""
    return hasattr(type(items), "element_spec")


def _is_read_in_turn(items: Any) -> bool:
    """Whether there is a first item, a second one, ...: also of what has numbered items only."""
    return hasattr(items, "__iter__") or hasattr(items, "__getitem__")


def _elements(items: Iterable[Any]) -> Iterator[Any]:
    """Iterates over a tf.data.Dataset as NumPy values and over anything else as it is."""
    if not is_tf_dataset(items):
        return iter(items)
    numpy_iterator, spec = items.as_numpy_iterator, items.element_spec  # type: ignore[attr-defined]
    if not isinstance(spec, tuple) or any(getattr(one, "shape", None) != () for one in spec):
        return numpy_iterator()
    # An element of a `tf.data.Dataset` costs as much as a batch of them.
    batches = items.batch(_TEXTS_AT_ONCE).as_numpy_iterator()  # type: ignore[attr-defined]
    return (pair for batch in batches for pair in zip(*batch, strict=True))


def _string(value: Any, index: int) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise ArgumentTypeError(
            expected="texts of type str", received=f"{describe(value)} at position {index}"
        )
    return value
