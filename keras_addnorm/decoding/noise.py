"""Counter-based random numbers: a sentence is sampled alike wherever it stands in a batch.

The generators of the backends draw one block of numbers a call: in another batch, or with more
padding, a sentence would get other numbers. Here each number is a hash of the seed, the sentence,
the draw, the step and the token, the same on every backend.
"""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_addnorm.basics.hashing import GOLDEN, lowbias32, word

Tensor = Any
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
