"""Greedy search."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras import ops

from keras_addnorm.decoding.length_penalty import gnmt_penalty
from keras_addnorm.decoding.steps import Cache, SpecialIds, Step, log_probabilities, write_column

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Greedy:
    """Takes the most probable token at each step, the smaller id of two equals.

    Args:
        length_penalty: The exponent of the GNMT penalty that the score is divided by.
    """

    length_penalty: float = 0.0

    @property
    def rows_per_sentence(self) -> int:
        """Number of rows that are decoded for each sentence."""
        return 1

    def search(
        self, step: Step, cache: Cache, is_empty: Tensor, max_length: int, ids: SpecialIds
    ) -> tuple[Tensor, Tensor]:
        """Decode until every row has ended.

        Args:
            step: The model.
            cache: Its state before the first step.
            is_empty: `(B,)`, True at rows with nothing to decode; they give padding and score 0.
            max_length: Number of tokens at most, T.
            ids: The special ids.

        Returns:
            Token ids `(B, T)` and scores `(B,)`.
        """
        batch_size = ops.shape(is_empty)[0]
        state = (
            ops.convert_to_tensor(0, dtype="int32"),
            ops.full((batch_size,), ids.start_id, dtype="int32"),
            ops.full((batch_size, max_length), ids.pad_id, dtype="int32"),
            ops.zeros((batch_size,), dtype="float32"),
            ops.zeros((batch_size,), dtype="int32"),
            is_empty,
            cache,
        )

        def is_running(index: Tensor, *state: Any) -> Tensor:
            is_done = state[4]
            return ops.logical_and(index < max_length, ops.logical_not(ops.all(is_done)))

        def advance(
            index: Tensor,
            tokens: Tensor,
            sequences: Tensor,
            sums: Tensor,
            lengths: Tensor,
            is_done: Tensor,
            cache: Cache,
        ) -> tuple[Any, ...]:
            logits, cache = step(tokens, index, cache)
            log_p = log_probabilities(logits, ids)
            best = ops.cast(ops.argmax(log_p, axis=-1), "int32")
            tokens = ops.where(is_done, ids.pad_id, best)
            sums = sums + ops.where(is_done, 0.0, ops.max(log_p, axis=-1))
            lengths = lengths + ops.where(is_done, 0, 1)
            sequences = write_column(sequences, index, tokens)
            is_done = ops.logical_or(is_done, ops.equal(tokens, ids.end_id))
            return index + 1, tokens, sequences, sums, lengths, is_done, cache

        _, _, sequences, sums, lengths, _, _ = ops.while_loop(is_running, advance, state)
        return sequences, sums / gnmt_penalty(lengths, self.length_penalty)
