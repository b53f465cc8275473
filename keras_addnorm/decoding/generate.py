"""From token ids to token ids: the traceable core, and `generate` around it."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.decoding.beam import Beam
from keras_addnorm.decoding.compilation import compile_decoder
from keras_addnorm.decoding.greedy import Greedy
from keras_addnorm.decoding.steps import SpecialIds

Tensor = Any
_SOURCE_MULTIPLE = 16


def decode(
    model: Any,
    source_ids: Tensor,
    *,
    num_beams: int = 1,
    length_penalty: float = 0.0,
    max_length: int,
) -> tuple[Tensor, Tensor]:
    """Decode a batch, in Keras operations only, so that it can be traced and exported.

    Args:
        model: A `Seq2SeqTransformer`, or any object with its `encode`, `initial_cache`,
            `decode_step` and `config`.
        source_ids: `(B, S)` int32; both sizes may be unknown while tracing.
        num_beams: Number of hypotheses; 1 is greedy search.
        length_penalty: The exponent of the GNMT penalty.
        max_length: Number of tokens to generate at most.

    Returns:
        Token ids `(B, max_length)` and scores `(B,)`.
    """
    strategy = Greedy(length_penalty) if num_beams == 1 else Beam(num_beams, length_penalty)
    config = model.config
    memory, memory_mask = model.encode(source_ids)
    rows = ops.shape(source_ids)[0] * strategy.rows_per_sentence
    cache = model.initial_cache(memory, rows, max_length)
    # Keys and values of the memory do not change and belong to no hypothesis: the loop carries
    # and reorders only those of the self-attention.
    fixed = [{k: v for k, v in layer.items() if k != "self_attention"} for layer in cache]
    moving = [layer["self_attention"] for layer in cache]

    def step(tokens: Tensor, index: Tensor, moving: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        cache = [{**layer, "self_attention": own} for layer, own in zip(fixed, moving, strict=True)]
        logits, cache = model.decode_step(tokens, cache, index, memory_mask)
        return logits, [layer["self_attention"] for layer in cache]

    is_empty = ops.logical_not(ops.any(memory_mask, axis=-1))
    ids = SpecialIds(config.pad_id, config.start_id, config.end_id)
    return strategy.search(step, moving, is_empty, max_length, ids)


def generate(
    model: Any,
    source_ids: Any,
    *,
    num_beams: int = 1,
    length_penalty: float = 0.0,
    max_length: int | None = None,
    jit_compile: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Check, pad, compile and run `decode`; documented at `Seq2SeqTransformer.generate`.

    Args:
        model: A `Seq2SeqTransformer`.
        source_ids: Integers, `(B, S)`.
        num_beams: Number of hypotheses.
        length_penalty: The exponent of the GNMT penalty.
        max_length: Number of tokens to generate at most; `None` for `config.max_length`.
        jit_compile: Whether TensorFlow compiles with XLA.

    Returns:
        Token ids `(B, max_length)` int32 and scores `(B,)` float32.

    Raises:
        ValueError: If the ids or an option do not fit.
    """
    max_length = model.config.max_length if max_length is None else max_length
    _check_options(model.config, num_beams, max_length)
    source_ids = _check_source_ids(source_ids, model.config)
    batch_size, length = source_ids.shape
    if batch_size == 0:
        return np.zeros((0, max_length), "int32"), np.zeros((0,), "float32")

    padded_shape = (1 << (batch_size - 1).bit_length(), _padded_length(length, model.config))
    padded = np.full(padded_shape, model.config.pad_id, dtype="int32")
    padded[:batch_size, :length] = source_ids
    options = {
        "num_beams": num_beams,
        "length_penalty": float(length_penalty),
        "max_length": max_length,
    }
    decoder = _compiled(model, options, padded_shape, jit_compile)
    ids, scores = decoder(ops.convert_to_tensor(padded))
    ids, scores = ops.convert_to_numpy(ids), ops.convert_to_numpy(scores)
    return ids[:batch_size], scores[:batch_size]


def _padded_length(length: int, config: Any) -> int:
    padded = _SOURCE_MULTIPLE * max(1, -(-length // _SOURCE_MULTIPLE))
    # Padding takes positions too: it must not run out of the table of learned ones.
    return max(length, min(padded, config.max_length)) if config.positions == "learned" else padded


def _compiled(
    model: Any, options: dict[str, Any], shape: tuple[int, int], jit_compile: bool
) -> Any:
    # Kept in the model's own dict: compiled functions live and die with the model, and Keras does
    # not track them as state.
    cache = vars(model).setdefault("_compiled_decoders", {})
    key = (*sorted(options.items()), shape, jit_compile)
    if key not in cache:
        cache[key] = compile_decoder(
            model, lambda source_ids: decode(model, source_ids, **options), shape, jit_compile
        )
    return cache[key]


def _check_options(config: Any, num_beams: int, max_length: int) -> None:
    for name, value in (("num_beams", num_beams), ("max_length", max_length)):
        if value < 1:
            raise ValueError(f"`{name}` has to be positive. Expected >= 1. Received: {value}")
    if config.positions == "learned" and max_length > config.max_length:
        raise ValueError(
            "The model has learned positions and cannot generate past them. Expected max_length "
            f"<= {config.max_length}. Received: {max_length}"
        )


def _check_source_ids(source_ids: Any, config: Any) -> np.ndarray:
    array = np.asarray(source_ids)
    if array.ndim != 2:
        raise ValueError(
            "Source ids need two axes. Expected shape (batch, length). "
            f"Received: {array.shape}. For one sentence, add a batch axis: ids[None]"
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            "Source ids have to be integers. Expected a dtype such as int32. "
            f"Received: {array.dtype}. Text goes through keras_addnorm.decoding.translate."
        )
    size = config.source_vocabulary_size
    if array.size and not (array.min() >= 0 and array.max() < size):
        raise ValueError(
            f"A source id lies outside the vocabulary. Expected 0 <= id < {size}. Received ids "
            f"from {array.min()} to {array.max()}. Is this the model's own tokenizer?"
        )
    return array
