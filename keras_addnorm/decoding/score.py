"""Log-probabilities of given outputs under a model, and their attention to the source."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.basics.argument_checks import is_whole, require_bool
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.decoding.checks import (
    WHERE_TO_LOOK,
    check_ids,
    check_length,
    check_padding,
    check_source_ids,
    id_array,
    pad_batch,
    padded_length,
)
from keras_addnorm.decoding.decoder import DecoderInfo
from keras_addnorm.decoding.engine import engine_for
from keras_addnorm.decoding.engine.base import run_compiled

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Scores:
    """Log-probabilities of given outputs.

    Args:
        token_log_probabilities: Of each token given the source and the tokens before it; 0 at
            padding. `(B, T)`, as the targets, or `(B, N, T)`.
        log_probabilities: Their sums: of each whole output, `(B,)` or `(B, N)`.
    """

    token_log_probabilities: np.ndarray
    log_probabilities: np.ndarray


def score(
    model: Any,
    source_ids: Any,
    target_ids: Any,
    *,
    num_free_tokens: int = 0,
    jit_compile: bool = True,
) -> Scores:
    """Score given outputs; documented at `Seq2SeqTransformer.score`.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: Integers, `(B, S)`.
        target_ids: Integers, `(B, T)`, or `(B, N, T)` for N outputs of each source.
        num_free_tokens: Number of tokens at the beginning of each output that cost nothing.
        jit_compile: Whether TensorFlow compiles with XLA.

    Returns:
        Log-probabilities of each token and of each output.

    Raises:
        TypeError: If the model cannot score.
        ValueError: If the ids do not fit, or the number is negative.
        FloatingPointError: If logits are not finite.
    """
    require_bool(jit_compile=jit_compile)
    if isinstance(model, type) or not hasattr(model, "decode_sequence"):
        raise ArgumentTypeError(
            "Outputs are scored in one pass.",
            "a Seq2SeqTransformer, or a model with the method decode_sequence",
            value=model,
        )
    if not is_whole(num_free_tokens, 0):
        raise ArgumentError(
            "Tokens that cost nothing are counted from the beginning of an output.",
            "an int `num_free_tokens` >= 0",
            num_free_tokens=num_free_tokens,
        )
    source_ids = check_source_ids(source_ids, DecoderInfo.of(model))
    target_ids = _check_target_ids(target_ids, len(source_ids), DecoderInfo.of(model))
    several = target_ids if target_ids.ndim == 3 else target_ids[:, None]
    tokens, _ = run_teacher_forced(model, source_ids, several, None, jit_compile)
    if np.isnan(tokens).any():
        raise FloatingPointError(
            "A logit was NaN or infinite while outputs were scored. Expected finite logits. "
            f"{WHERE_TO_LOOK}"
        )
    is_free = np.arange(target_ids.shape[-1]) < num_free_tokens
    tokens = np.where(is_free, np.float32(0.0), tokens.reshape(target_ids.shape))
    return Scores(tokens, tokens.sum(-1))


def run_teacher_forced(
    model: Any,
    source_ids: np.ndarray,
    target_ids: np.ndarray,
    layer: int | None,
    jit_compile: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Pad, compile and run `teacher_forced`.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: `(B, S)`.
        target_ids: `(B, N, T)`.
        layer: The layer whose attention is asked for, or `None`.
        jit_compile: Whether TensorFlow compiles with XLA.

    Returns:
        Log-probabilities `(B, N, T)` and attention `(B, N, T, S)`, which is empty if none was
        asked for.
    """
    info, pad_id = DecoderInfo.of(model), model.config.pad_id
    batch_size, _, length = target_ids.shape
    source_length = source_ids.shape[1]
    if target_ids.size == 0:
        return np.zeros(target_ids.shape, "float32"), np.zeros((0,), "float32")
    source = pad_batch(source_ids, padded_length(source_length, info), pad_id)
    target = pad_batch(target_ids, padded_length(length, info), pad_id)
    tokens, attention = run_compiled(
        model,
        ("score", layer),
        lambda source, target: teacher_forced(model, source, target, layer),
        (source, target),
        engine_for(jit_compile),
    )
    tokens = tokens[:batch_size, :, :length]
    if layer is not None:
        attention = attention[:batch_size, :, :length, :source_length]
    return tokens, attention


def teacher_forced(
    model: Any, source_ids: Tensor, target_ids: Tensor, layer: int | None
) -> tuple[Tensor, Tensor]:
    """Run the decoder over whole outputs, in Keras operations only.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: `(B, S)`.
        target_ids: `(B, N, T)`, without start tokens.
        layer: The layer whose cross-attention is asked for, or `None`.

    Returns:
        Float32 log-probabilities `(B, N, T)`, 0 at padding, and the attention `(B, N, T, S)`
        averaged over heads, or a tensor of no elements.
    """
    config = model.config
    _, num_outputs, length = target_ids.shape
    memory, mask = model.encode(source_ids)
    memory = ops.repeat(memory, num_outputs, axis=0)
    mask = ops.repeat(mask, num_outputs, axis=0)
    labels = ops.reshape(target_ids, (-1, length))
    start = ops.full((ops.shape(labels)[0], 1), config.start_id, dtype=labels.dtype)
    inputs = ops.concatenate([start, labels[:, :-1]], axis=1)
    logits, *scores = model.decode_sequence(
        inputs, memory, mask, return_attention_scores=layer is not None
    )
    logits = ops.cast(logits, "float32")
    chosen = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)[..., 0]
    log_p = chosen - ops.logsumexp(logits, axis=-1)
    log_p = ops.where(ops.not_equal(labels, config.pad_id), log_p, 0.0)
    attention = ops.zeros((0,), dtype="float32")
    if layer is not None:
        # (B N, H, T, S) -> (B, N, T, S)
        (by_layer,) = scores
        attention = ops.mean(ops.cast(by_layer[layer]["cross_attention"], "float32"), axis=1)
        source_length = ops.shape(attention)[-1]
        attention = ops.reshape(attention, (-1, num_outputs, length, source_length))
    return ops.reshape(log_p, (-1, num_outputs, length)), attention


def _check_target_ids(target_ids: Any, batch_size: int, info: DecoderInfo) -> np.ndarray:
    array = id_array("target", target_ids)
    if array.ndim not in (2, 3) or len(array) != batch_size:
        raise ArgumentError(
            "Target ids do not go with the source ids.",
            f"shape (batch, length) or (batch, outputs, length) with a batch of {batch_size}",
            value=array.shape,
        )
    check_ids("target", array, info.target_vocabulary_size)
    holds_start = array == info.start_id
    if info.start_id in (info.pad_id, info.end_id):  # Nothing follows padding or an end.
        goes_on = (array[..., 1:] != info.pad_id).any(-1, keepdims=True)
        holds_start = holds_start[..., :1] & goes_on
    if holds_start.any():
        raise ArgumentError(
            "Target ids hold the start token, which the model never generates.",
            "tokens, end token, padding",
            "Leave the first column out.",
            received=f"the id {info.start_id}",
        )
    check_padding("target", array, info.pad_id)
    check_length("target", array.shape[-1], info.num_positions)
    return array
