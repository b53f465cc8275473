"""The log-probabilities of the next token, under the rules of a search."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import keras
from keras import ops

from keras_addnorm.decoding.constraints import View
from keras_addnorm.decoding.engine import Engine
from keras_addnorm.decoding.log_probabilities import IMPOSSIBLE
from keras_addnorm.decoding.prefix import Prefix
from keras_addnorm.decoding.search_inputs import SearchInputs
from keras_addnorm.decoding.special_ids import SpecialIds

Tensor = Any


def log_probabilities(logits: Tensor, ids: SpecialIds, engine: Engine) -> tuple[Tensor, Tensor]:
    """Return float32 log-probabilities in which what is never generated cannot be chosen.

    Args:
        logits: `(N, V)`.
        ids: The special ids.
        engine: Writes over them.

    Returns:
        `(N, V)`, and `(N,)`, True where a logit is NaN or plus infinity. The softmax runs over
        the whole vocabulary, so scores are the model's own.
    """
    logits = ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
    total = ops.logsumexp(logits, axis=-1, keepdims=True)
    log_p = ops.cast(logits - total, "float32")
    log_p = engine.fill_columns(log_p, ids.never_generated, IMPOSSIBLE)
    return log_p, ops.logical_not(ops.isfinite(total[:, 0]))


@dataclasses.dataclass(frozen=True)
class NextTokens:
    """Log-probabilities of the next token under the rules of some inputs.

    Args:
        inputs: The inputs.
        engine: The engine of the search.
        source_lengths: `(N,)`, the number of tokens of each row's source; `None` without
            constraints.
        prefix: What the output of each row begins with, or `None`.
    """

    inputs: SearchInputs
    engine: Engine
    source_lengths: Tensor | None
    prefix: Prefix | None

    @classmethod
    def of(cls, inputs: SearchInputs, engine: Engine, rows_per_sentence: int) -> NextTokens:
        """Return the reader for B sentences of N / B rows each, side by side."""
        lengths = prefix = None
        if inputs.constraints:
            lengths = ops.sum(ops.cast(inputs.source_mask, "int32"), axis=-1)
            lengths = ops.repeat(lengths, rows_per_sentence, axis=0)
        if inputs.prefix is not None:
            prefix = inputs.prefix.repeated(rows_per_sentence)
        return cls(inputs, engine, lengths, prefix)

    def read(self, logits: Tensor, sequences: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities without what may not come next.

        Args:
            logits: `(N, V)`.
            sequences: `(N, T)`, what has been generated.
            index: The step.

        Returns:
            `(N, V)`, and `(N,)`, True where a logit is no number.
        """
        inputs = self.inputs
        own, is_bad = log_probabilities(logits, inputs.ids, self.engine)
        log_p = own
        if inputs.constraints:
            view = View(
                sequences,
                index,
                self.source_lengths,
                logits.shape[-1],
                inputs.ids,
                inputs.tokens,
            )
            allowed = (constraint.allowed(view) for constraint in inputs.constraints)
            log_p = ops.where(functools.reduce(ops.logical_and, allowed), own, IMPOSSIBLE)
        if self.prefix is not None:
            log_p = self.prefix.force(own, log_p, index, inputs.ids.pad_id)
        return log_p, is_bad
