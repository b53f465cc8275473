"""The inputs and the results of a search."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from keras import ops

from keras_addnorm.decoding.constraints import Constraint
from keras_addnorm.decoding.indexing import select, take
from keras_addnorm.decoding.log_probabilities import is_possible
from keras_addnorm.decoding.prefix import Prefix
from keras_addnorm.decoding.special_ids import SpecialIds
from keras_addnorm.decoding.top_k import best_first

Tensor = Any


class SearchResult(NamedTuple):
    """The hypotheses that a search returns, the best first.

    Args:
        ids: `(B, N, T)` int32, padded after the end.
        scores: `(B, N)` float32. Where there is no further hypothesis, the row is padding and
            the score minus infinity.
        bad_step: The first step at which a logit was no number, or `max_length`; a scalar.
    """

    ids: Tensor
    scores: Tensor
    bad_step: Tensor


class Hypotheses(NamedTuple):
    """All hypotheses of a search, in any order.

    Args:
        sequences: `(B, M, T)` int32.
        scores: `(B, M)`.
        bad_step: See `SearchResult`.
    """

    sequences: Tensor
    scores: Tensor
    bad_step: Tensor


@dataclasses.dataclass(frozen=True)
class SearchInputs:
    """The sentences of a search, and the rules that hold for their outputs.

    Args:
        source_ids: `(B, S)` int32. A row of padding has nothing to decode: it gives padding and
            the score 0.
        max_length: Number of tokens at most, T.
        ids: The special ids: the columns of the logits that stand for them.
        constraints: Rules about the next token.
        prefix: What the outputs begin with, a row of tokens for each sentence, or `None`. Where
            it forces a token, no other rule holds.
        seed: An int32 scalar for strategies that draw at random, instead of their own; as a
            tensor, another seed needs no new compilation.
        tokens: `(V,)` int32: the token that each column of the logits stands for, where they are a
            `Shortlist`'s; `None` where columns are tokens.
        source_pad_id: The padding of the sources; `None` for that of `ids`.
        num_needed: How many of the N hypotheses of a beam are looked at, an int32 scalar: a
            sentence need not be searched until the others are certain, too. `None` for all N.
    """

    source_ids: Tensor
    max_length: int
    ids: SpecialIds
    constraints: tuple[Constraint, ...] = ()
    prefix: Prefix | None = None
    seed: Tensor | None = None
    tokens: Tensor | None = None
    source_pad_id: int | None = None
    num_needed: Tensor | None = None

    def of(self, sentences: Tensor) -> SearchInputs:
        """Return the inputs of some sentences, by their places in the batch, `(b,)` int32."""
        return dataclasses.replace(
            self,
            source_ids=take(self.source_ids, sentences),
            prefix=None if self.prefix is None else self.prefix.of_sentences(sentences),
        )

    @property
    def batch_size(self) -> int | Tensor:
        """Number of sentences, B."""
        return ops.shape(self.source_ids)[0]

    @property
    def source_mask(self) -> Tensor:
        """`(B, S)`, True at real tokens."""
        pad_id = self.ids.pad_id if self.source_pad_id is None else self.source_pad_id
        return ops.not_equal(self.source_ids, pad_id)

    @property
    def is_empty(self) -> Tensor:
        """`(B,)`, True at sentences with nothing to decode."""
        return ops.logical_not(ops.any(self.source_mask, axis=-1))

    def best(self, hypotheses: Hypotheses, count: int) -> SearchResult:
        """Return the `count` best hypotheses of each sentence."""
        sequences, scores, bad_step = hypotheses
        scores, order = best_first(scores, count)
        is_empty = ops.expand_dims(self.is_empty, -1)
        is_there = ops.logical_and(is_possible(scores), ops.logical_not(is_empty))
        ids = ops.where(ops.expand_dims(is_there, -1), select(sequences, order), self.ids.pad_id)
        # An empty source gives one empty output, with probability 1.
        is_nothing = ops.logical_and(is_empty, ops.equal(ops.arange(count, dtype="int32"), 0))
        missing = ops.where(is_nothing, ops.zeros_like(scores), -float("inf"))
        return SearchResult(ids, ops.where(is_there, scores, missing), bad_step)
