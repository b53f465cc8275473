"""Dropout whose random numbers are hashes, a few integer operations each."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.hashing import FIRST_MULTIPLIER, GOLDEN, lowbias32, word

Tensor = Any

_SEED, _COUNTER = 0x85EBCA6B, 0xC2B2AE35  # odd numbers without pattern, of MurmurHash3's finaliser


@keras.saving.register_keras_serializable(package="keras_addnorm")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` with a cheaper source of randomness.

    Each element is kept or dropped by a hash of its index and of the layer's seed generator, which
    counts on with each call. The compiler computes it where it is used, forward and backward, so no
    mask is kept in memory. Same arguments, same state, same seeds; other elements are dropped than
    by Keras. The rate is rounded to a multiple of 2^-32, and what is kept is scaled by exactly the
    reciprocal of the share that is kept. Elements repeat after 2^32.

    On torch, and with a `noise_shape`, it is Keras' own dropout.

    Args:
        *args: The arguments of `keras.layers.Dropout`: `rate`, `noise_shape`, `seed`.
        **kwargs: The same by name, and the arguments of a Keras layer.

    Example:
    ```python
    import keras
    from keras_addnorm.layers.dropout import Dropout

    y = Dropout(0.25, seed=1)(keras.ops.ones((2, 5)), training=True)  # zeros, and 4/3
    ```

    Reference:
        Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
        2014; the hash: Wellons, "Prospecting for Hash Functions", 2018 (`lowbias32`).
    """

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        """Drop elements while training."""
        is_plain = self.noise_shape is None and keras.backend.backend() != "torch"
        if not (training and self.rate and is_plain):
            return super().call(inputs, training=training)
        # At a rate of (almost) one no number of 32 bits is small enough.
        dropped = min(round(self.rate * 2**32), 2**32 - 1)
        is_kept = random_words(ops.shape(inputs), self.seed_generator.next()) >= word(
            dropped, "uint32"
        )
        return ops.where(is_kept, inputs * (1 / (1 - dropped / 2**32)), 0)


def random_words(shape: tuple[int | Tensor, ...], seed: Tensor) -> Tensor:
    """Return uniform random uint32 words of a shape, for a seed and a counter (two integers)."""
    seed = ops.cast(seed, "uint32")
    # Both keys depend on both numbers: neither layers nor steps share a sequence.
    keys = seed * _words(_SEED, _COUNTER) + ops.flip(seed) * _words(FIRST_MULTIPLIER, GOLDEN)
    size = 1
    for length in shape:
        size = size * length
    # The key is added first: XLA would store an array of whatever does not depend on the key.
    x = (ops.cast(ops.arange(size, dtype="int32"), "uint32") + keys[0]) * word(GOLDEN, "uint32")
    return ops.reshape(lowbias32(x, keys[1]), shape)


def _words(*numbers: int) -> Tensor:
    return ops.convert_to_tensor(np.array(numbers, "uint32"), "uint32")
