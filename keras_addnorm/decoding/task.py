"""What a search is given to do."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_addnorm.decoding.compilation import select, take
from keras_addnorm.decoding.constraints import Constraint, View
from keras_addnorm.decoding.steps import (
    IMPOSSIBLE,
    Cache,
    Columns,
    Found,
    SpecialIds,
    best_first,
    is_possible,
    log_probabilities,
)

Tensor = Any
ReadLogits = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""`read(logits (N, V), sequences (N, T), index) -> (log_p (N, V), is_bad (N,))`."""


@dataclasses.dataclass(frozen=True)
class Stages:
    """What the stages of a search are: `IN_GROUPS` or `IN_ONE_LOOP` of `decoding.stages`.

    Args:
        first: Returns the length up to which the first one decodes, of `longest` positions at
            most, from sources that are `source_length` long: `first(longest, source_length)`.
        run: Runs a loop: `run(loop_of, state, task, num_hypotheses, with_room)`; see
            `run_in_stages` and `Growth`.
    """

    first: Callable[[int, int | Tensor], int | Tensor]
    run: Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Growth:
    """How a search goes on from one stage to the next.

    Args:
        stages: What the stages are.
        with_room: Returns a cache with room for more positions: `with_room(cache, length)`.
    """

    stages: Stages
    with_room: Callable[[Cache, int | Tensor], Cache]


@dataclasses.dataclass(frozen=True)
class Task:
    """What a search is to decode, and under which rules.

    Args:
        source_ids: `(B, S)` int32. A row of padding has nothing to decode: it gives padding and
            the score 0.
        max_length: Number of tokens at most, T.
        ids: The special ids.
        constraints: Rules about the next token.
        prefix: `(B, P)` int32, padded: tokens that each output begins with, or `None`. Where it
            forces a token, no other rule holds.
        seed: An int32 scalar for strategies that draw at random, instead of their own; as a
            tensor, another seed needs no new compilation.
        bonus: Reads from the cache what is added to the score of each row's hypothesis, or
            `None`: `bonus(cache) -> (N,)`, never positive.
        tokens: `(V,)` int32: the token that each column of the logits stands for, where they are a
            `Shortlist`'s; `None` where columns are tokens. The special ids are in their own place.
        growth: How `run_in_stages` goes on from stage to stage, or `None` for one stage.
        columns: How the numbers of the vocabulary are looked at.
    """

    source_ids: Tensor
    max_length: int
    ids: SpecialIds
    constraints: tuple[Constraint, ...] = ()
    prefix: Tensor | None = None
    seed: Tensor | None = None
    bonus: Callable[[Cache], Tensor] | None = None
    tokens: Tensor | None = None
    growth: Growth | None = None
    columns: Columns = dataclasses.field(default_factory=Columns)

    def of(self, sentences: Tensor) -> Task:
        """Return the task of some sentences.

        Args:
            sentences: Their places in the batch, `(b,)` int32.

        Returns:
            The same for them.
        """
        return dataclasses.replace(
            self,
            source_ids=take(self.source_ids, sentences),
            prefix=None if self.prefix is None else take(self.prefix, sentences),
        )

    @property
    def batch_size(self) -> int | Tensor:
        """Number of sentences, B."""
        return ops.shape(self.source_ids)[0]

    @property
    def source_mask(self) -> Tensor:
        """`(B, S)`, True at real tokens."""
        return ops.not_equal(self.source_ids, self.ids.pad_id)

    @property
    def is_empty(self) -> Tensor:
        """`(B,)`, True at sentences with nothing to decode."""
        return ops.logical_not(ops.any(self.source_mask, axis=-1))

    def reader(self, rows_per_sentence: int) -> ReadLogits:
        """Return the function that makes log-probabilities of logits.

        Args:
            rows_per_sentence: Number of rows of each sentence, side by side.

        Returns:
            A function that leaves out what may not come next, and says where logits are not
            finite.
        """
        source_lengths = prefix = None
        if self.constraints:
            source_lengths = ops.sum(ops.cast(self.source_mask, "int32"), axis=-1)
            source_lengths = ops.repeat(source_lengths, rows_per_sentence, axis=0)
        if self.prefix is not None:
            prefix = ops.repeat(self.prefix, rows_per_sentence, axis=0)

        def read(logits: Tensor, sequences: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
            own, is_bad = log_probabilities(logits, self.ids, self.columns)
            log_p = own
            if self.constraints:
                view = View(
                    sequences, index, source_lengths, logits.shape[-1], self.ids, self.tokens
                )
                allowed = (constraint.allowed(view) for constraint in self.constraints)
                log_p = ops.where(functools.reduce(ops.logical_and, allowed), own, IMPOSSIBLE)
            if prefix is not None:
                log_p = _force(own, log_p, prefix, index, self.ids.pad_id)
            return log_p, is_bad

        return read

    def result(self, count: int, sequences: Tensor, scores: Tensor, bad_step: Tensor) -> Found:
        """Return the `count` best hypotheses of each sentence.

        Args:
            count: How many, N.
            sequences: All hypotheses, `(B, M, T)`.
            scores: Their scores, `(B, M)`.
            bad_step: See `Found`.

        Returns:
            What the search returns.
        """
        scores, order = best_first(scores, count)
        is_empty = ops.expand_dims(self.is_empty, -1)
        is_there = ops.logical_and(is_possible(scores), ops.logical_not(is_empty))
        ids = ops.where(ops.expand_dims(is_there, -1), select(sequences, order), self.ids.pad_id)
        # Nothing to decode is decoded to nothing, once and for certain.
        is_nothing = ops.logical_and(is_empty, ops.equal(ops.arange(count), 0))
        missing = ops.where(is_nothing, 0.0, -float("inf"))
        return Found(ids, ops.where(is_there, scores, missing), bad_step)


def _force(own: Tensor, log_p: Tensor, prefix: Tensor, index: Tensor, pad_id: int) -> Tensor:
    """Return `log_p`, but `own` at the prefix's token only, where there is one at `index`."""
    length = prefix.shape[1]
    token = ops.take(prefix, ops.minimum(index, length - 1), axis=1)
    is_forced = ops.logical_and(index < length, ops.not_equal(token, pad_id))
    is_token = ops.equal(ops.arange(own.shape[-1], dtype="int32"), ops.expand_dims(token, -1))
    return ops.where(ops.expand_dims(is_forced, -1), ops.where(is_token, own, IMPOSSIBLE), log_p)
