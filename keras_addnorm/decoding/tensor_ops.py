"""Operations on tensors that searches share: gathers, the best of rows, random numbers."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_addnorm.basics.hashing import GOLDEN, lowbias32, word
from keras_addnorm.layers.shapes import size_of

Tensor = Any


def select(rows: Tensor, order: Tensor) -> Tensor:
    """Return some entries of each row: `(N, M, ...)`, `(N, m)` -> `(N, m, ...)`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # `take_along_axis` becomes twenty operations of TensorFlow, and transposes all rows.
        return tf.gather(rows, order, axis=1, batch_dims=1)
    for _ in rows.shape[2:]:
        order = ops.expand_dims(order, -1)
    return ops.take_along_axis(rows, order, axis=1)


def take(x: Tensor, indices: Tensor) -> Tensor:
    """Return some entries of the first axis: `(N, ...)`, `(n, ...)` -> `(n, ...)`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # `ops.take` becomes six operations of TensorFlow, for the sake of negative indices.
        return tf.gather(x, indices)
    return ops.take(x, indices, axis=0)


def write_column(sequences: Tensor, index: Tensor, tokens: Tensor) -> Tensor:
    """Return `sequences` `(..., T)` with `tokens` `(...)` at position `index`."""
    is_here = ops.equal(ops.arange(size_of(sequences, -1), dtype="int32"), index)
    return ops.where(is_here, ops.expand_dims(tokens, -1), sequences)


IMPOSSIBLE = -1e9
"""Log-probability of an impossible token. Finite, because sums of infinities can be NaN."""


def is_possible(scores: Tensor) -> Tensor:
    """Return where a sum or score belongs to something that can happen."""
    return scores > IMPOSSIBLE / 2


def first_bad_step(bad_step: Tensor, is_bad: Tensor, index: Tensor) -> Tensor:
    """Return the earlier of `bad_step` and, if any row `is_bad`, this one."""
    return ops.where(ops.any(is_bad), ops.minimum(bad_step, index), bad_step)


_BLOCK = 64
"""Largest size of the blocks by whose maxima `best_first` preselects, in long rows."""


def best_first(scores: Tensor, count: int, line: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the `count` largest numbers of each row, and their places, int32.

    Of equal numbers, the first one comes first.

    Args:
        scores: `(N, M)`.
        count: Number of results for each row.
        line: Length of the equal parts that a row consists of, such as V in a row of K
            hypotheses; `None` for M.

    Returns:
        Numbers and places, `(N, count)` each.
    """
    if keras.backend.backend() == "torch":
        # `torch.topk` breaks ties as it likes; a stable sort does not.
        order = ops.argsort(-scores, axis=-1)[:, :count]
        return select(scores, order), order
    width = scores.shape[-1]
    if width > 16 * count * _BLOCK:
        return _best_of_blocks(scores, count, line or width)
    scores, order = ops.top_k(scores, k=count)
    return scores, ops.cast(order, "int32")


def _block_size(line: int) -> int:
    """Return the size of the blocks whose largest numbers are compared first."""
    divisors = (size for size in range(_BLOCK, _BLOCK // 2 - 1, -1) if line % size == 0)
    return next(divisors, _BLOCK)


def _best_of_blocks(scores: Tensor, count: int, line: int) -> tuple[Tensor, Tensor]:
    """Return the same from the `count` blocks with the largest maxima, which is faster."""
    size = _block_size(line)
    blocks_per_line = -(-line // size)
    _, blocks = ops.top_k(_block_maxima(scores, line, size), k=count)
    # In their original order, so that of equal numbers the first one still comes first.
    blocks = ops.sort(ops.cast(blocks, "int32"), axis=-1)
    # (N, C) -> (N, C, size) -> (N, C size): their numbers, by their places in the line and the row
    in_line = ops.expand_dims(blocks % blocks_per_line * size, -1)
    in_line = in_line + ops.arange(size, dtype="int32")
    places = ops.expand_dims(blocks // blocks_per_line * line, -1) + in_line
    in_line, places = (ops.reshape(x, (-1, count * size)) for x in (in_line, places))
    few = select(scores, ops.minimum(places, ops.cast(scores.shape[-1] - 1, "int32")))
    # Minus infinity behind the end of a line comes after that of the row's first block.
    few = ops.where(in_line < line, few, -float("inf"))
    few, order = ops.top_k(few, k=count)
    return few, select(places, ops.cast(order, "int32"))


def _block_maxima(scores: Tensor, line: int, size: int) -> Tensor:
    """Return the largest number of each block; the last block of a line has what is left of it.

    Padding the lines instead would copy all numbers, which takes XLA longer than to compare them.
    """
    lines = ops.reshape(scores, (-1, scores.shape[-1] // line, line))
    rest = line % size
    whole = ops.reshape(lines[..., : line - rest], (-1, lines.shape[1], line // size, size))
    maxima = ops.max(whole, axis=-1)
    if rest:
        last = ops.max(lines[..., line - rest :], axis=-1, keepdims=True)
        maxima = ops.concatenate([maxima, last], axis=-1)
    return ops.reshape(maxima, (-1, lines.shape[1] * maxima.shape[-1]))


# Counter-based random numbers: a sentence is sampled alike wherever it stands in a batch. The
# generators of the backends draw one block of numbers a call: in another batch, or with more
# padding, a sentence would get other numbers. Here each number is a hash of the seed, the sentence,
# the draw, the step and the token, the same on every backend.
_GOLDEN = GOLDEN - 2**32  # the same bits, signed
_MANTISSA = 23


def sentence_keys(source_ids: Tensor, source_mask: Tensor, seed: int | Tensor) -> Tensor:
    """Return a random int32 for each sentence, `(B,)`, whatever its padding."""
    positions = ops.arange(ops.shape(source_ids)[1], dtype="int32")
    hashes = lowbias32(source_ids + lowbias32(positions * _GOLDEN))
    total = ops.sum(ops.where(source_mask, hashes, 0), axis=-1)
    return lowbias32(total + lowbias32(ops.cast(seed, "int32") + _GOLDEN))


def spread(keys: Tensor, numbers: Tensor) -> Tensor:
    """Return a new int32 key for each pair of a key and a number; the shapes broadcast."""
    numbers = ops.convert_to_tensor(numbers, "int32")
    return lowbias32(keys + lowbias32(numbers * _GOLDEN))


def gumbel(keys: Tensor) -> Tensor:
    """Return a draw from the Gumbel distribution for each key, float32 of the same shape."""
    bits = ops.right_shift(lowbias32(keys), word(32 - _MANTISSA, "int32"))
    bits = ops.bitwise_and(bits, word(2**_MANTISSA - 1, "int32"))
    # Half a step up: neither 0 nor 1, whose logarithms are not finite.
    uniform = (ops.cast(bits, "float32") + 0.5) / 2.0**_MANTISSA
    return -ops.log(-ops.log(uniform))
