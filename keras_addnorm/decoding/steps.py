"""What every search works with: a step function, the special ids, and masked log-probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

Tensor = Any
Cache = Any
"""Any nested structure of tensors whose first axis counts rows."""

Step = Callable[[Tensor, Tensor, Cache], tuple[Tensor, Cache]]
"""`step(token_ids (N,), index, cache) -> (logits (N, V), cache)`."""

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


def log_probabilities(logits: Tensor, ids: SpecialIds) -> Tensor:
    """Return float32 log-probabilities in which padding and start cannot be chosen.

    Args:
        logits: `(N, V)`.
        ids: The special ids.

    Returns:
        `(N, V)`. The softmax runs over the whole vocabulary, so scores are the model's own.
    """
    dtype = keras.backend.result_type(logits.dtype, "float32")
    log_p = ops.log_softmax(ops.cast(logits, dtype), axis=-1)
    tokens = ops.arange(logits.shape[-1], dtype="int32")
    is_forbidden = ops.logical_or(ops.equal(tokens, ids.pad_id), ops.equal(tokens, ids.start_id))
    return ops.cast(ops.where(is_forbidden, IMPOSSIBLE, log_p), "float32")


def write_column(sequences: Tensor, index: Tensor, tokens: Tensor) -> Tensor:
    """Return `sequences` `(..., T)` with `tokens` `(...)` at position `index`."""
    is_here = ops.equal(ops.arange(sequences.shape[-1], dtype="int32"), index)
    return ops.where(is_here, ops.expand_dims(tokens, -1), sequences)
