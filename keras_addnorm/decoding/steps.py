"""What every search works with: the step function and a few pure functions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_addnorm.decoding.compilation import select
from keras_addnorm.layers.shapes import size_of

Tensor = Any


class Cache(NamedTuple):
    """What the model keeps from step to step, in three nested structures of tensors.

    The first axis of all of them counts sentences, or equal blocks of entries of each sentence.

    Args:
        rows: Their first axis counts rows: when hypotheses are reordered, so are these.
        shared: Written by each step. When hypotheses are reordered, these stay as they are.
        fixed: The same at each step.
    """

    rows: Any
    shared: Any = ()
    fixed: Any = ()


Step = Callable[[Tensor, Tensor, Cache], tuple[Tensor, Cache]]
"""`step(token_ids (N,), index, cache) -> (logits (N, V), cache)`."""

_BLOCK = 64
"""Numbers at most that `best_first` looks at as one, by their largest, where there are many."""

IMPOSSIBLE = -1e9
"""Log-probability of what cannot happen. Finite, since infinities breed NaN."""


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """The ids a search has to know.

    Args:
        pad_id: Fills rows after their end; never generated.
        start_id: Read at the first step; never generated.
        end_id: Ends a sequence.
    """

    pad_id: int
    start_id: int
    end_id: int


class Found(NamedTuple):
    """What a search has found, the best first.

    Args:
        ids: `(B, N, T)` int32, padded after the end.
        scores: `(B, N)` float32. Where there is no further hypothesis, the row is padding and
            the score minus infinity.
        bad_step: The first step at which a logit was no number, or `max_length`; a scalar.
    """

    ids: Tensor
    scores: Tensor
    bad_step: Tensor


class Columns:
    """How the numbers of a vocabulary are looked at. `in_place` has the way of some loops."""

    def without(self, x: Tensor, columns: tuple[int, ...]) -> Tensor:
        """Return `x` with columns that cannot be chosen.

        Args:
            x: `(N, V)`.
            columns: Which ones.

        Returns:
            The same numbers, but `IMPOSSIBLE` in these columns.
        """
        tokens = ops.arange(x.shape[-1], dtype="int32")
        is_left_out = functools.reduce(
            ops.logical_or, (ops.equal(tokens, column) for column in columns)
        )
        return ops.where(is_left_out, IMPOSSIBLE, x)

    def largest(self, x: Tensor) -> Tensor:
        """Return where the largest number of each row stands, the first of equals.

        Args:
            x: `(N, V)`.

        Returns:
            `(N,)` int32.
        """
        # Two plain reductions. XLA makes one scalar loop of an argmax, which takes four times as
        # long.
        best = ops.max(x, axis=-1, keepdims=True)
        tokens = ops.arange(x.shape[-1], dtype="int32")
        return ops.min(ops.where(ops.equal(x, best), tokens, x.shape[-1] - 1), axis=-1)


def log_probabilities(logits: Tensor, ids: SpecialIds, columns: Columns) -> tuple[Tensor, Tensor]:
    """Return float32 log-probabilities in which padding and start cannot be chosen.

    Args:
        logits: `(N, V)`.
        ids: The special ids.
        columns: How they are looked at.

    Returns:
        `(N, V)`, and `(N,)`, True where a logit is NaN or plus infinity. The softmax runs over
        the whole vocabulary, so scores are the model's own.
    """
    logits = ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
    total = ops.logsumexp(logits, axis=-1, keepdims=True)
    log_p = columns.without(ops.cast(logits - total, "float32"), (ids.pad_id, ids.start_id))
    return log_p, ops.logical_not(ops.isfinite(total[:, 0]))


def write_column(sequences: Tensor, index: Tensor, tokens: Tensor) -> Tensor:
    """Return `sequences` `(..., T)` with `tokens` `(...)` at position `index`."""
    is_here = ops.equal(ops.arange(size_of(sequences, -1), dtype="int32"), index)
    return ops.where(is_here, ops.expand_dims(tokens, -1), sequences)


def best_first(scores: Tensor, count: int, line: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the `count` largest numbers of each row, and where they stood, int32.

    Of equals, the one further to the front comes first.

    Args:
        scores: `(N, M)`.
        count: How many.
        line: How many numbers were a line of their own before they came to a row, such as the V of
            one of K hypotheses; all of them unless given.

    Returns:
        Numbers and places, `(N, count)` each.
    """
    if keras.backend.backend() == "torch":
        # `torch.topk` breaks ties as it likes; a stable sort does not.
        order = ops.argsort(-scores, axis=-1)[:, :count]
        return select(scores, order), order
    width = scores.shape[-1]
    if width > 16 * count * _BLOCK:
        return _best_of_blocks(scores, count, _block_size(line or width))
    scores, order = ops.top_k(scores, k=count)
    return scores, ops.cast(order, "int32")


def _block_size(width: int) -> int:
    """Return how many numbers of lines of some width are looked at as one.

    No block goes beyond its line if there is such a size: XLA would divide to find each number.
    """
    divisors = (size for size in range(_BLOCK, _BLOCK // 2 - 1, -1) if width % size == 0)
    return next(divisors, _BLOCK)


def _best_of_blocks(scores: Tensor, count: int, size: int) -> tuple[Tensor, Tensor]:
    """Return the same, faster, from the `count` blocks with the largest maxima: no other counts."""
    width = scores.shape[-1]
    scores = ops.pad(scores, ((0, 0), (0, -width % size)), constant_values=-float("inf"))
    blocks = ops.reshape(scores, (-1, -(-width // size), size))
    _, chosen = ops.top_k(ops.max(blocks, axis=-1), k=count)
    # As they stood, so that of equals the one further to the front still comes first.
    chosen = ops.sort(ops.cast(chosen, "int32"), axis=-1)
    few = select(blocks, chosen)
    scores, order = ops.top_k(ops.reshape(few, (-1, count * size)), k=count)
    order = ops.cast(order, "int32")
    return scores, select(chosen, order // size) * size + order % size


def is_possible(scores: Tensor) -> Tensor:
    """Return where a sum or score belongs to something that can happen."""
    return scores > IMPOSSIBLE / 2


def first_bad_step(bad_step: Tensor, is_bad: Tensor, index: Tensor) -> Tensor:
    """Return the earlier of `bad_step` and, if any row `is_bad`, this one."""
    return ops.where(ops.any(is_bad), ops.minimum(bad_step, index), bad_step)
