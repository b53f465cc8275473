"""An aligner: IBM's first model, then a hidden Markov model, in both directions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_addnorm.alignment.hmm import Jumps, Posteriors, forward_backward
from keras_addnorm.alignment.symmetrization import grow_diag_final_and
from keras_addnorm.alignment.translation_table import MOST_PASSES, TranslationTable, ibm_model_1
from keras_addnorm.basics.argument_checks import require_int
from keras_addnorm.basics.errors import ArgumentError

_MOST_COOCCURRENCES = 10_000_000
"""Most token pairs to learn from, half a GiB; of larger texts, sentences are skipped."""
_AT_ONCE = 1_000_000
"""Token pairs of the sentences that are computed together; a pair with more has no links."""
_SAFE_LENGTH = 1000
"""Longest sentence with links: jumps take the square of it."""


def align(
    pairs: Iterable[tuple[Sequence[Hashable], Sequence[Hashable]]],
    *,
    ibm_iterations: int = 5,
    hmm_iterations: int = 5,
) -> list[np.ndarray]:
    """Finds which tokens of sentences and of their translations belong together.

    IBM's first model begins, a hidden Markov model goes on, in both directions; each token is
    linked with its most probable partner, if one is more probable than none, and
    `grow_diag_final_and` combines the two. The models learn from all pairs; of a text with more
    than ten million pairs of tokens, only from every second, fourth, ... sentence. The result
    depends on the pairs alone.

    Args:
        pairs: The tokens of both sides: words, pieces or ids. Sides may be empty.
        ibm_iterations: Passes of IBM's first model.
        hmm_iterations: Passes of the hidden Markov model.

    Returns:
        The links of each pair, `(L, 2)` int32: positions in source and target, from 0. Pairs of
        more than a million pairs of tokens, or with a sentence of more than a thousand, have none.

    Raises:
        ValueError: If a number is below 1 or above 1,000, or a pair is none.

    Example:
        >>> pairs = [("a b".split(), "x y".split()), ("b".split(), "y".split())] * 2
        >>> align(pairs)[0].tolist()
        [[0, 0], [1, 1]]
    """
    require_int(
        "An aligner passes over the pairs.",
        most=MOST_PASSES,
        ibm_iterations=ibm_iterations,
        hmm_iterations=hmm_iterations,
    )
    sources, targets = _numbered(pairs)
    usable = [
        index
        for index, (s, t) in enumerate(zip(sources, targets, strict=True))
        if len(s) * len(t) in range(1, _AT_ONCE + 1) and max(len(s), len(t)) <= _SAFE_LENGTH
    ]
    links = [np.zeros((0, 2), np.int32) for _ in sources]
    if not usable:
        return links
    sources, targets = ([side[index] for index in usable] for side in (sources, targets))
    forward = _directed(sources, targets, ibm_iterations, hmm_iterations)
    backward = _directed(targets, sources, ibm_iterations, hmm_iterations)
    for index, one, other in zip(usable, forward, backward, strict=True):
        links[index] = grow_diag_final_and(one, [(s, t) for t, s in other])
    return links


def _numbered(pairs: Iterable[Sequence[Sequence[Hashable]]]) -> tuple[list[np.ndarray], ...]:
    """Returns both sides as numbers of their tokens, from 0."""
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise _no_pair(pairs)
    numbers: tuple[dict[Hashable, int], ...] = ({}, {})
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for pair in pairs:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not all(map(_is_row, pair)):
            raise _no_pair(pair)
        for tokens, known, rows in zip(pair, numbers, sides, strict=True):
            row = [known.setdefault(token, len(known)) for token in tokens]
            rows.append(np.array(row, np.int64))
    return sides


def _is_row(tokens: Any) -> bool:
    """Says whether tokens are several, each of which can be told from others."""
    if isinstance(tokens, str | bytes) or not isinstance(tokens, Sequence | np.ndarray):
        return False
    return all(isinstance(token, Hashable) for token in tokens)


def _no_pair(value: Any) -> ArgumentError:
    return ArgumentError(
        "Alignments are found between the tokens of two sentences.",
        "pairs of two lists of tokens",
        "Split texts first: (source.split(), target.split()).",
        value=value,
    )


@dataclass(frozen=True)
class _Group:
    """Sentences with as many source tokens each, and their translations, padded.

    Attributes:
        members: `(N,)`: their numbers.
        cells: `(N, T, S + 1)`: the places of pairs of tokens in the table, those of no source last.
        is_real: `(N, T)`: False at padding.
    """

    members: np.ndarray
    cells: np.ndarray
    is_real: np.ndarray

    def posteriors(self, probability: np.ndarray, jumps: Jumps) -> Posteriors:
        emission = probability[self.cells]
        matrix = jumps.matrix(emission.shape[2] - 1)
        return forward_backward(emission[..., :-1], emission[..., -1], self.is_real, matrix)


def _directed(
    sources: list[np.ndarray],
    targets: list[np.ndarray],
    ibm_iterations: int,
    hmm_iterations: int,
) -> list[list[tuple[int, int]]]:
    """Returns for each sentence the links of its target tokens: `(source, target)`, at most one."""
    null = 1 + max(int(row.max()) for row in sources)
    with_null = [np.append(row, null) for row in sources]
    target_size = 1 + max(int(row.max()) for row in targets)
    total = sum(s.size * t.size for s, t in zip(sources, targets, strict=True))
    every = 1
    while total > every * _MOST_COOCCURRENCES and every < len(sources):
        every *= 2
    some = slice(None, None, every)
    table = ibm_model_1(with_null[some], targets[some], target_size, ibm_iterations)
    jumps = Jumps()

    def groups(step: int) -> Iterator[_Group]:
        return _groups(with_null, targets, np.arange(0, len(sources), step), table)

    learning = list(groups(every))
    for _ in range(hmm_iterations):
        counts, seen = np.zeros(len(table.keys) + 1), Jumps()
        probability = _with_unknown(table)
        for group in learning:
            found = group.posteriors(probability, jumps)
            shares = np.concatenate([found.links, found.null[..., None]], 2)
            counts += np.bincount(group.cells.ravel(), shares.ravel(), len(counts))
            seen.add(found.jumps)
        table.set_counts(counts[:-1])
        jumps = seen
    links: list[list[tuple[int, int]]] = [[] for _ in sources]
    probability = _with_unknown(table)
    for group in learning if every == 1 else groups(1):
        found = group.posteriors(probability, jumps)
        best, row, column = found.links.argmax(2), *np.nonzero(group.is_real)
        linked = found.links.max(2) > found.null
        for n, t in zip(row[linked[row, column]], column[linked[row, column]], strict=True):
            links[group.members[n]].append((int(best[n, t]), int(t)))
    return links


def _with_unknown(table: TranslationTable) -> np.ndarray:
    """The probabilities, and that of pairs of tokens which the table lacks."""
    return np.append(table.probability, 0.0)


def _groups(
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    members: np.ndarray,
    table: TranslationTable,
) -> Iterator[_Group]:
    def lengths(n: int) -> tuple[int, int]:
        return len(sources[n]), len(targets[n])

    for _, same in itertools.groupby(sorted(members, key=lengths), key=lambda n: len(sources[n])):
        group: list[int] = []
        for n in same:
            if group and len(sources[n]) * len(targets[n]) * (len(group) + 1) > _AT_ONCE:
                yield _group(sources, targets, group, table.cells_of)
                group = []
            group.append(n)
        yield _group(sources, targets, group, table.cells_of)


def _group(
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    members: list[int],
    cells_of: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> _Group:
    source = np.stack([sources[n] for n in members])
    longest = max(len(targets[n]) for n in members)
    target = np.stack([np.pad(targets[n], (0, longest - len(targets[n]))) for n in members])
    lengths = np.array([len(targets[n]) for n in members])
    is_real = np.arange(longest) < lengths[:, None]
    cells = cells_of(source[:, None, :], target[:, :, None]).astype(np.int32)
    return _Group(np.array(members), cells, is_real)
