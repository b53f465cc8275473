"""The product with the vocabulary: 16-bit operands with float32 results, whole or in chunks.

Shape letters: N tokens, D width, V vocabulary, C entries of a chunk. A table is `(V, D)`
(`vocabulary_axis=0`), a kernel `(D, V)` (`vocabulary_axis=1`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.label_logits import LabelLogits
from keras_addnorm.basics.tensors import inside_vocabulary
from keras_addnorm.layers.shapes import leading_sizes

Tensor = Any

_LOWEST = -3e38
"""Where a running maximum begins: finite, so that a chunk of forbidden tokens gives no NaN."""


def project(x: Tensor, weight: Tensor, vocabulary_axis: int) -> Tensor:
    """Return `(N, V)` logits of `(N, D)` hidden states, of at least float32.

    Gradients are products of operands of the same type as those of the forward pass: a product of
    float32 by bfloat16, as automatic differentiation makes it, would be one of float32.
    """
    columns = 1 - vocabulary_axis
    if not is_16_bit(x):
        return _matmul(x, weight, 1, columns)

    @ops.custom_gradient
    def product(x: Tensor, weight: Tensor) -> tuple[Tensor, Callable[..., Any]]:
        def gradient(*args: Any, upstream: Any = None) -> Any:
            if upstream is None:  # TensorFlow and JAX pass it alone, torch as a keyword.
                (upstream,) = args
            dz = ops.cast(upstream, x.dtype)
            return (
                _gradient_of_x(dz, x, weight, vocabulary_axis),
                _gradient_of_weight(dz, x, weight, vocabulary_axis),
            )

        return _matmul(x, weight, 1, columns), gradient

    return product(x, weight)


def label_logits(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    vocabulary_axis: int,
    chunk_size: int,
) -> LabelLogits:
    """Return what a cross-entropy needs of the logits `x weight + bias`, chunk by chunk.

    The logits of a chunk of the vocabulary are made, used, and made again for the gradient: there
    are never more than `(N, C)` of them. The softmax over all chunks is that of Milakov and
    Gimelshein (2018), with a running maximum.

    Args:
        x: Hidden states, `(..., D)`.
        weight: The table `(V, D)` or the kernel `(D, V)`, of the type of `x`.
        bias: `(V,)`, or `None`.
        labels: `(...)`, integers.
        vocabulary_axis: Which axis of the weight is V.
        chunk_size: C; the chunks are made equal, so they may be a little smaller.

    Returns:
        Four numbers for each position. `prediction` has no gradient.
    """
    size = weight.shape[vocabulary_axis]
    width = "float64" if keras.backend.standardize_dtype(x.dtype) == "float64" else "float32"
    leading = leading_sizes(x, len(x.shape) - 1)
    is_inside = ops.reshape(inside_vocabulary(labels, size), (-1, 1))
    flat = ops.cast(ops.where(is_inside, ops.reshape(labels, (-1, 1)), 0), "int32")
    chunks = _Chunks(size, chunk_size, vocabulary_axis)
    has_bias = bias is not None

    @ops.custom_gradient
    def numbers(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Callable[..., Any]]:
        def logits_of(start: Tensor) -> Tensor:
            logits = _matmul(x, chunks.of(weight, start), 1, 1 - vocabulary_axis)
            logits = ops.cast(logits, width)
            return (
                ops.add(logits, ops.slice(bias, (start,), (chunks.size,))) if has_bias else logits
            )

        def read(index: Tensor, found: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            highest, total, label, summed, prediction = found
            start = chunks.start(index)
            ids = chunks.ids(start)
            is_new = ops.greater_equal(ids, index * chunks.size)
            z = logits_of(start)
            z_new = ops.where(is_new, z, _LOWEST)
            here = ops.max(z_new, axis=-1, keepdims=True)
            first = ops.min(
                ops.where(ops.equal(z_new, here), ids, size - 1), axis=-1, keepdims=True
            )
            higher = ops.maximum(highest, here)
            exponentials = ops.where(is_new, ops.exp(z_new - higher), 0)
            total = total * ops.exp(highest - higher)
            is_label = ops.logical_and(is_new, ops.equal(ids, flat))
            return (
                higher,
                total + ops.sum(exponentials, axis=-1, keepdims=True),
                label + ops.sum(ops.where(is_label, z, 0), axis=-1, keepdims=True),
                summed + ops.sum(ops.where(is_new, z, 0), axis=-1, keepdims=True),
                ops.where(ops.greater(here, highest), first, prediction),
            )

        nothing = ops.zeros_like(flat, dtype=width)
        start = (nothing + _LOWEST, nothing, nothing, nothing, ops.zeros_like(flat))
        highest, total, label, summed, prediction = ops.fori_loop(0, chunks.count, read, start)
        normalizer = ops.log(total) + highest
        found = (normalizer, label, summed / size, ops.cast(prediction, width))
        values = ops.where(is_inside, ops.concatenate(found, axis=-1), float("nan"))

        def gradient(*args: Any, upstream: Any = None) -> Any:
            if upstream is None:
                (upstream,) = args
            upstream = ops.cast(upstream, width)[:, :3]
            is_right = ops.logical_or(is_inside, ops.equal(upstream, 0))
            upstream = ops.where(is_right, upstream, float("nan"))
            of_normalizer, of_label, of_mean = ops.split(upstream, 3, axis=-1)

            def write(index: Tensor, sums: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
                dx, dweight, dbias = sums
                start = chunks.start(index)
                ids = chunks.ids(start)
                # A token without weight has no gradient even where its logits are not finite.
                softmax = ops.exp(logits_of(start) - normalizer) * of_normalizer
                dz = ops.where(ops.equal(of_normalizer, 0), 0, softmax) + of_mean / size
                dz = dz + ops.where(ops.equal(ids, flat), of_label, 0)
                if has_bias:
                    of_bias = ops.cast(ops.sum(dz, axis=0), bias.dtype)
                    dbias = _written(dbias, of_bias, (start,))
                dz = ops.cast(dz, x.dtype)
                piece = chunks.of(weight, start)
                of_weight = _gradient_of_weight(dz, x, piece, vocabulary_axis)
                # The last chunk begins earlier where V is no multiple: what it writes again is
                # the same, and what it would add again is left out.
                is_new = ops.greater_equal(ids, index * chunks.size)
                dz = ops.where(is_new, dz, 0)
                dx = dx + ops.cast(_matmul(dz, piece, 1, vocabulary_axis), width)
                return dx, _written(dweight, of_weight, chunks.place(start)), dbias

            sums = (
                ops.zeros_like(x, width),
                ops.zeros_like(weight),
                ops.zeros_like(bias),
            )
            dx, dweight, dbias = ops.fori_loop(0, chunks.count, write, sums)
            return ops.cast(dx, x.dtype), dweight, dbias

        return values, gradient

    hidden = ops.reshape(x, (-1, x.shape[-1]))
    bias = ops.convert_to_tensor(bias) if has_bias else ops.zeros((1,), width)
    values = numbers(hidden, weight, bias)
    found = [ops.reshape(one, leading) for one in ops.split(values, 4, axis=-1)]
    return LabelLogits(*found)


class _Chunks:
    """Equal parts of the axis of the vocabulary; the last one may overlap the one before."""

    def __init__(self, vocabulary_size: int, largest: int, axis: int) -> None:
        self.count = math.ceil(vocabulary_size / largest)
        self.size = math.ceil(vocabulary_size / self.count)
        self._last, self._axis = vocabulary_size - self.size, axis

    def start(self, index: Tensor) -> Tensor:
        """Return the first id of a chunk."""
        if isinstance(index, int):
            return min(index * self.size, self._last)
        return ops.minimum(index * self.size, self._last)

    def ids(self, start: Tensor) -> Tensor:
        """Return the ids of a chunk, `(1, C)`."""
        return ops.expand_dims(start + ops.arange(self.size, dtype="int32"), 0)

    def place(self, start: Tensor) -> tuple[Any, Any]:
        """Return where a chunk begins in the weight."""
        return (start, 0) if self._axis == 0 else (0, start)

    def of(self, weight: Tensor, start: Tensor) -> Tensor:
        """Return a chunk of the weight."""
        width = weight.shape[1 - self._axis]
        shape = (self.size, width) if self._axis == 0 else (width, self.size)
        return ops.slice(weight, self.place(start), shape)


def _gradient_of_x(dz: Tensor, x: Tensor, weight: Tensor, vocabulary_axis: int) -> Tensor:
    """Return the gradient of the hidden states, of their type, from that of the logits."""
    return ops.cast(_matmul(dz, weight, 1, vocabulary_axis), x.dtype)


def _gradient_of_weight(dz: Tensor, x: Tensor, weight: Tensor, vocabulary_axis: int) -> Tensor:
    """Return the gradient of the weight, of its type, from that of the logits."""
    pair = (dz, x) if vocabulary_axis == 0 else (x, dz)
    return ops.cast(_matmul(*pair, 0, 0), weight.dtype)


def _matmul(x: Tensor, y: Tensor, x_axis: int, y_axis: int) -> Tensor:
    """Return the product of two matrices over an axis of each, of at least float32.

    Operands of 16 bits are multiplied as they are, and summed up in float32. TensorFlow has such a
    product inside XLA only, and rounds the sum to 16 bits; torch has it on GPUs, and elsewhere the
    operands are made wider, which gives the same numbers.
    """
    backend = keras.backend.backend()
    narrow = is_16_bit(x)
    if backend == "jax":
        import jax

        return jax.lax.dot_general(
            x,
            y,
            (((x_axis,), (y_axis,)), ((), ())),
            preferred_element_type="float32" if narrow else None,
        )
    if backend == "tensorflow":
        import tensorflow as tf

        product = tf.matmul(x, y, transpose_a=x_axis == 0, transpose_b=y_axis == 1)
        return tf.cast(product, tf.float32) if narrow else product
    import torch

    x, y = x.T if x_axis == 0 else x, y.T if y_axis == 1 else y
    if not narrow:
        return torch.mm(x, y)
    if x.is_cuda:
        return torch.mm(x, y, out_dtype=torch.float32)
    return torch.mm(x.float(), y.float())


def _written(whole: Tensor, part: Tensor, start: tuple[Any, ...]) -> Tensor:
    """Return a tensor with a part of it replaced, in its own memory where the backend lets us."""
    if keras.backend.backend() == "torch":
        place = tuple(slice(i, i + n) for i, n in zip(start, part.shape, strict=True))
        whole[place] = part
        return whole
    return ops.slice_update(whole, start, part)


def is_16_bit(x: Tensor) -> bool:
    """Return whether a tensor is of bfloat16 or float16."""
    return keras.backend.standardize_dtype(x.dtype) in ("bfloat16", "float16")
