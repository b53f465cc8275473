"""Masks and attention under them, as pure functions. True means "attend", or "a real token"."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import keras
from keras import ops
from keras.src.backend import get_keras_mask  # Keras offers no public way to read a tensor's mask.

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.tensors import as_mask, to_tensor

Tensor = Any


def token_mask(token_ids: Tensor, pad_id: int, is_first_real: bool = False) -> Tensor:
    """Return where token ids are real.

    Args:
        token_ids: `(B, T)`.
        pad_id: The id of padding.
        is_first_real: Whether the first position is real whatever its id: that of a target whose
            start token is padding.

    Returns:
        Booleans of shape `(B, T)`.

    Example:
    ```python
    token_mask([[0, 4, 0]], pad_id=0, is_first_real=True)  # [[True, True, False]]
    ```
    """
    is_real = ops.not_equal(token_ids, pad_id)
    if not is_first_real:
        return is_real
    return ops.concatenate([ops.ones_like(is_real[:, :1]), is_real[:, 1:]], axis=1)


def position_mask(
    distances: Tensor, is_causal: bool = False, window: int | None = None
) -> Tensor | None:
    """Let each query see the keys that its position allows.

    Args:
        distances: `key position - query position`, `(T, S)`, from `key_distances`.
        is_causal: Whether to hide later keys.
        window: Whether to hide keys that are `window` or more positions away; `None` for not.

    Returns:
        Booleans of shape `(T, S)`, or `None` if nothing is hidden.

    Example:
    ```python
    position_mask(key_distances(3, 4), window=2)
    # [[True, True, False, False], [True, True, True, False], [False, True, True, True]]
    ```
    """
    causal = distances <= 0 if is_causal else None
    if window is None:
        return causal
    near = ops.abs(distances) < window
    return near if causal is None else ops.logical_and(near, causal)


def key_distances(
    num_queries: int | Tensor, num_keys: int | Tensor, offset: int | Tensor = 0
) -> Tensor:
    """Return `key position - query position`, int32 `(T, S)`, for queries from `offset` on."""
    queries = ops.expand_dims(ops.arange(num_queries, dtype="int32") + offset, axis=-1)
    return ops.arange(num_keys, dtype="int32") - queries


def combine_masks(
    padding_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    by_position: Tensor | None = None,
    num_keys: int | None = None,
) -> Tensor | None:
    """Combine the three kinds of mask into one that fits attention logits of `(B, H, T, S)`.

    Args:
        padding_mask: `(B, S)`, True at real keys.
        attention_mask: `(B, T, S)` or `(T, S)`, True where a query may attend to a key.
        by_position: `(T, S)`, from `position_mask`.
        num_keys: S, if it is known.

    Returns:
        Booleans that broadcast to `(B, 1, T, S)`, or `None` if there is no mask at all.

    Raises:
        ValueError: If a mask has the wrong rank, holds floats, or is for other keys.
    """
    masks = []
    if padding_mask is not None:
        padding_mask = as_mask(padding_mask, "padding_mask")
        _check_shape("padding_mask", padding_mask, {2: "(batch, keys)"}, num_keys)
        masks.append(padding_mask[:, None, None, :])
    if attention_mask is not None:
        ranks = {2: "(queries, keys)", 3: "(batch, queries, keys)"}
        attention_mask = as_mask(attention_mask, "attention_mask")
        _check_shape("attention_mask", attention_mask, ranks, num_keys)
        is_batched = len(attention_mask.shape) == 3
        masks.append(attention_mask[:, None] if is_batched else attention_mask[None, None])
    if by_position is not None:
        masks.append(by_position[None, None])
    if not masks:
        return None
    combined = masks[0]
    for mask in masks[1:]:
        combined = ops.logical_and(combined, mask)
    return combined


def explicit_or_implicit(mask: Tensor | None, x: Tensor | None) -> Tensor | None:
    """Return the mask that was passed, or else the one that Keras attached to `x`."""
    return get_keras_mask(x) if mask is None and x is not None else mask


def softmax(logits: Tensor) -> Tensor:
    """Softmax over the last axis."""
    # Keras warns of a softmax over one entry, but a sequence of one token is no mistake. The
    # difference `logits - logits` is zero, as is its gradient, and keeps the graph connected.
    return ops.exp(logits - logits) if logits.shape[-1] == 1 else ops.softmax(logits, axis=-1)


def masked_softmax(
    logits: Tensor,
    mask: Tensor | None,
    sink: float | Tensor | None = None,
    dtype: str | None = None,
    normalise: Callable[[Tensor], Tensor] = softmax,
) -> Tensor:
    """Softmax over the last axis among the True entries of `mask`.

    A row with no True entry gives zeros: with nothing to attend to there is nothing to add. Only
    the weights are kept for the backward pass (except on torch, and with a sink).

    Args:
        logits: `(..., S)`; their dtype is that of the computation.
        mask: Booleans that broadcast to `logits`, or `None`.
        sink: A logit of "no key", which takes its share of each row; broadcasts to `(..., 1)`.
        dtype: Of the weights; `None` for that of the logits.
        normalise: The softmax over all entries.

    Returns:
        Weights that sum to one in each row (to zero in a row with nothing to attend to, to less
        than one with a sink).
    """
    logits = ops.convert_to_tensor(logits)
    dtype = dtype or ops.dtype(logits)
    if sink is not None:
        return ops.cast(_softmax_with_sink(logits, mask, sink, normalise), dtype)
    if keras.backend.backend() == "torch":
        return ops.cast(_softmax_among(logits, mask, normalise), dtype)

    # The mask is an argument: JAX cannot rematerialise a tensor that the function closes over.
    @ops.custom_gradient
    def among(
        logits: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor | None, ...]]]:
        weights = ops.cast(_softmax_among(logits, mask, normalise), dtype)

        def gradient(upstream: Tensor) -> tuple[Tensor | None, ...]:
            wide = ops.cast(weights, logits.dtype)
            product = wide * ops.cast(upstream, logits.dtype)
            slope = product - wide * ops.sum(product, axis=-1, keepdims=True)
            return (slope,) if mask is None else (slope, None)

        return weights, gradient

    return among(logits) if mask is None else among(logits, to_tensor(mask))


def _softmax_among(
    logits: Tensor, mask: Tensor | None, normalise: Callable[[Tensor], Tensor]
) -> Tensor:
    if mask is None:
        return normalise(logits)
    # Finite instead of minus infinity: a row of infinities would give NaN.
    weights = normalise(ops.where(mask, logits, -1e30))
    has_key = ops.any(mask, axis=-1, keepdims=True)
    return weights * ops.cast(has_key, weights.dtype)


def _softmax_with_sink(
    logits: Tensor,
    mask: Tensor | None,
    sink: float | Tensor,
    normalise: Callable[[Tensor], Tensor],
) -> Tensor:
    if mask is not None:
        logits = ops.where(mask, logits, -1e30)
    # In a row without a True entry, the sink takes all the weight.
    sink = ops.cast(sink, logits.dtype) + ops.zeros_like(logits[..., :1])
    return normalise(ops.concatenate([logits, sink], axis=-1))[..., :-1]


def _check_shape(name: str, mask: Tensor, shapes: dict[int, str], num_keys: int | None) -> None:
    if len(mask.shape) not in shapes:
        raise ArgumentError(
            f"`{name}` has the wrong number of axes.",
            " or ".join(shapes.values()),
            received=f"shape: {tuple(mask.shape)}",
        )
    if isinstance(num_keys, int) and mask.shape[-1] not in (None, num_keys):
        raise ArgumentError(
            f"`{name}` is not for these keys.",
            f"{num_keys} of them, on the last axis",
            received=f"shape: {tuple(mask.shape)}",
        )


@functools.cache
def has_fused_attention() -> bool:
    """Return whether the backend has an attention that is at least as fast as its steps.

    Measured with benchmarks/attention.py: torch has kernels of its own on every device and JAX
    (cuDNN's flash attention) on GPUs. JAX on CPUs and TensorFlow go through the same steps, a
    little slower. On TPUs Keras' kernel takes the mask of the first row for all rows where it can
    look at it, and cannot be used where it cannot.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        return keras.distribution.list_devices()[0].startswith(("gpu", "cuda"))
    return backend == "torch"


@functools.cache
def say_if_not_fused(reason: str | None, dtype: str) -> None:
    """Warn, once for each reason, if attention on a GPU takes more memory than it has to.

    Args:
        reason: What needs the attention weights; `None` for nothing.
        dtype: Of the queries: cuDNN's attention, which JAX calls, takes 16 bits.
    """
    backend = keras.backend.backend()
    on_jax = backend == "jax"  # Fused there means a GPU.
    if reason is None and on_jax and dtype == "float32":
        reason = "cuDNN's operation is for 16 bits, and this is float32"
    if reason is None:
        return
    if not (on_jax or (backend == "torch" and ops.zeros((), "float32").device.type == "cuda")):
        return
    warnings.warn(
        "On this GPU an attention is computed in steps, which hold a weight for each query and "
        f"key, and not in one operation: {reason}.",
        stacklevel=2,
    )


def fused_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Return `softmax(q k^T) v`, zeros where there is nothing to attend to.

    Args:
        queries: Scaled queries, `(B, T, H, K)`.
        keys: `(B, S, G, K)`.
        values: `(B, S, G, K)`.
        mask: Booleans that broadcast to `(B, H, T, S)`, or `None`.

    Returns:
        `(B, T, H, K)`.
    """
    if mask is None:
        return ops.dot_product_attention(queries, keys, values, scale=1.0)
    if keras.backend.backend() == "jax":
        # cuDNN refuses a mask with one row for all queries, and Keras would not use it then.
        shape = (*mask.shape[:2], queries.shape[1], keys.shape[1])
        full = ops.broadcast_to(mask, shape)
    else:
        full = mask
    context = ops.dot_product_attention(queries, keys, values, mask=full, scale=1.0)
    # The backends make an even average of a row with nothing to attend to.
    has_key = ops.any(mask, axis=-1)  # (B, 1, T)
    return ops.where(ops.swapaxes(has_key, 1, 2)[..., None], context, 0.0)
