"""Random numbers that depend on what they are for, not on where it stands in a batch.

The generators of the backends draw one block of numbers a call: in another batch, or with more
padding, a sentence would get others. Here each number is a hash of the seed, the sentence, the
draw, the step and the token, so that a sentence is sampled alike wherever it stands, and the same
on every backend.

Reference:
    Wellons, "Prospecting for Hash Functions", 2018 (the mixing function, "lowbias32").
"""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any
_GOLDEN = 0x9E3779B9 - 2**32
_MANTISSA = 23


def sentence_keys(source_ids: Tensor, source_mask: Tensor, seed: int | Tensor) -> Tensor:
    """Return a random int32 for each sentence, `(B,)`; padding does not matter.

    Args:
        source_ids: `(B, S)` int32.
        source_mask: `(B, S)`, True at real tokens.
        seed: An int32.

    Returns:
        `(B,)`, int32.
    """
    positions = ops.arange(ops.shape(source_ids)[1], dtype="int32")
    hashes = _mix(source_ids + _mix(positions * _GOLDEN))
    total = ops.sum(ops.where(source_mask, hashes, 0), axis=-1)
    return _mix(total + _mix(ops.cast(seed, "int32") + _GOLDEN))


def spread(keys: Tensor, numbers: Tensor) -> Tensor:
    """Return a new key for each pair of a key and a number; the shapes broadcast.

    Args:
        keys: int32.
        numbers: int32, whatever tells the new keys apart.

    Returns:
        int32.
    """
    return _mix(keys + _mix(numbers * _GOLDEN))


def gumbel(keys: Tensor) -> Tensor:
    """Return a number drawn from the Gumbel distribution for each key.

    The index of the largest of `log_p + gumbel` is a draw from the distribution of `log_p`.

    Args:
        keys: int32.

    Returns:
        float32, of the same shape.
    """
    bits = ops.bitwise_and(ops.right_shift(_mix(keys), 32 - _MANTISSA), 2**_MANTISSA - 1)
    # Half a step up: neither 0 nor 1, whose logarithms are not finite.
    uniform = (ops.cast(bits, "float32") + 0.5) / 2.0**_MANTISSA
    return -ops.log(-ops.log(uniform))


def _mix(x: Tensor) -> Tensor:
    """Return a scrambled int32, one for each: products overflow on purpose."""
    x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 16), 0xFFFF))
    x = x * 0x7FEB352D
    x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 15), 0x1FFFF))
    x = x * (0x846CA68B - 2**32)
    return ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 16), 0xFFFF))
