"""Beam search with a length penalty and frozen finished hypotheses."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_addnorm.decoding.length_penalty import gnmt_penalty
from keras_addnorm.decoding.steps import (
    IMPOSSIBLE,
    Cache,
    SpecialIds,
    Step,
    log_probabilities,
    write_column,
)

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Beam:
    """Keeps the `num_beams` best unfinished hypotheses and the `num_beams` best finished ones.

    At each step the `2 num_beams` best continuations are looked at. Those that end and are among
    the first `num_beams` are finished: their score is final and they take no further part. The
    best of the others go on. A sentence is done once `num_beams` hypotheses have finished, or at
    `max_length`, where the unfinished ones are compared as they are. With one beam this is greedy
    search. Of two equal candidates the one with the better-ranked beam, then the smaller id, is
    kept.

    Args:
        num_beams: Number of hypotheses, K.
        length_penalty: The exponent of the GNMT penalty that scores are divided by.

    Raises:
        ValueError: If `num_beams` is not positive.

    Reference:
        Wu et al., "Google's Neural Machine Translation System", 2016, section 7.
    """

    num_beams: int
    length_penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.num_beams < 1:
            raise ValueError(
                f"A beam needs hypotheses. Expected num_beams >= 1. Received: {self.num_beams}"
            )

    @property
    def rows_per_sentence(self) -> int:
        """Number of rows that are decoded for each sentence."""
        return self.num_beams

    def search(
        self, step: Step, cache: Cache, is_empty: Tensor, max_length: int, ids: SpecialIds
    ) -> tuple[Tensor, Tensor]:
        """Decode until every sentence is done.

        Args:
            step: The model. Rows `b K` to `b K + K - 1` are the hypotheses of sentence `b`.
            cache: Its state before the first step, with `B K` rows.
            is_empty: `(B,)`, True at sentences with nothing to decode; they give padding and
                score 0.
            max_length: Number of tokens at most, T.
            ids: The special ids.

        Returns:
            Token ids `(B, T)` and scores `(B,)` of the best hypotheses.
        """
        num_beams, batch_size = self.num_beams, ops.shape(is_empty)[0]
        # (B, K, T): all hypotheses start equal, so only the first may be continued at first.
        nothing = ops.full((batch_size, num_beams, max_length), ids.pad_id, dtype="int32")
        none_yet = ops.full((batch_size, num_beams), IMPOSSIBLE, dtype="float32")
        first = ops.cast(ops.equal(ops.arange(num_beams), 0), "float32")
        state = (
            ops.convert_to_tensor(0, dtype="int32"),
            ops.full((batch_size, num_beams), ids.start_id, dtype="int32"),
            nothing,
            none_yet * (1.0 - first),
            nothing,
            none_yet,
            ops.zeros((batch_size,), dtype="int32"),
            is_empty,
            cache,
        )

        def is_running(index: Tensor, *state: Any) -> Tensor:
            is_done = state[6]
            return ops.logical_and(index < max_length, ops.logical_not(ops.all(is_done)))

        def advance(
            index: Tensor,
            tokens: Tensor,
            alive: Tensor,
            alive_sums: Tensor,
            finished: Tensor,
            finished_scores: Tensor,
            num_finished: Tensor,
            is_done: Tensor,
            cache: Cache,
        ) -> tuple[Any, ...]:
            logits, cache = step(ops.reshape(tokens, (-1,)), index, cache)
            log_p = log_probabilities(logits, ids)
            # (B K, V) -> (B, K V): the 2K best continuations of each sentence, best first
            vocabulary_size = logits.shape[-1]
            sums = ops.expand_dims(ops.reshape(alive_sums, (-1,)), -1) + log_p
            sums = ops.reshape(sums, (-1, num_beams * vocabulary_size))
            num_candidates = min(2 * num_beams, num_beams * vocabulary_size)
            sums, flat = ops.top_k(sums, k=num_candidates)
            flat = ops.cast(flat, "int32")
            origin, token = flat // vocabulary_size, flat % vocabulary_size
            candidates = write_column(_select(alive, origin), index, token)
            is_end = ops.equal(token, ids.end_id)
            is_possible = sums > IMPOSSIBLE / 2

            # Finished: an end among the first K, of a sentence that is not done.
            rank = ops.arange(num_candidates, dtype="int32")
            ends_now = ops.logical_and(ops.logical_and(is_end, is_possible), rank < num_beams)
            ends_now = ops.logical_and(ends_now, ops.expand_dims(ops.logical_not(is_done), -1))
            scores = sums / gnmt_penalty(index + 1, self.length_penalty)
            scores = ops.where(ends_now, scores, IMPOSSIBLE)
            finished, finished_scores = _best(
                num_beams,
                ops.concatenate([finished, candidates], axis=1),
                ops.concatenate([finished_scores, scores], axis=1),
            )
            num_finished = num_finished + ops.sum(ops.cast(ends_now, "int32"), axis=1)
            is_done = ops.logical_or(is_done, num_finished >= num_beams)

            # Alive: the K best that do not end.
            alive_sums, kept = ops.top_k(ops.where(is_end, IMPOSSIBLE, sums), k=num_beams)
            kept = ops.cast(kept, "int32")
            alive = _select(candidates, kept)
            tokens = ops.take_along_axis(token, kept, axis=1)
            rows = ops.take_along_axis(origin, kept, axis=1)
            rows = rows + num_beams * ops.expand_dims(
                ops.arange(ops.shape(rows)[0], dtype="int32"), -1
            )
            cache = _reorder(cache, ops.reshape(rows, (-1,)))
            return (
                index + 1,
                tokens,
                alive,
                alive_sums,
                finished,
                finished_scores,
                num_finished,
                is_done,
                cache,
            )

        state = ops.while_loop(is_running, advance, state)
        index, _, alive, alive_sums, finished, finished_scores, _, is_done, _ = state
        # A sentence that is not done has reached max_length: its unfinished hypotheses count too.
        scores = alive_sums / gnmt_penalty(index, self.length_penalty)
        may_count = ops.logical_and(
            alive_sums > IMPOSSIBLE / 2, ops.expand_dims(ops.logical_not(is_done), -1)
        )
        sequences, scores = _best(
            1,
            ops.concatenate([finished, alive], axis=1),
            ops.concatenate([finished_scores, ops.where(may_count, scores, IMPOSSIBLE)], axis=1),
        )
        best, score = sequences[:, 0], scores[:, 0]
        return (
            ops.where(ops.expand_dims(is_empty, -1), ids.pad_id, best),
            ops.where(is_empty, 0.0, score),
        )


def _select(sequences: Tensor, indices: Tensor) -> Tensor:
    # (B, n, T), (B, m) -> (B, m, T)
    return ops.take_along_axis(sequences, ops.expand_dims(indices, -1), axis=1)


def _best(count: int, sequences: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    scores, indices = ops.top_k(scores, k=count)
    return _select(sequences, ops.cast(indices, "int32")), scores


def _reorder(cache: Cache, rows: Tensor) -> Cache:
    return keras.tree.map_structure(lambda tensor: ops.take(tensor, rows, axis=0), cache)
