"""Attention in separate steps or as the backend's fused operation: which is faster?

`keras_addnorm.layers.masks` takes the fused operation where it is at least as fast. Run
with KERAS_BACKEND=tensorflow, jax or torch; forward and backward, with a padding mask.
"""

import argparse

import keras
import measure
import numpy as np
from keras import ops

from keras_addnorm.layers import attention, masks
from keras_addnorm.layers.kv_cache import KeyValues

SHAPES = {"short": (32, 24, 4, 32), "base": (8, 64, 8, 64), "long": (2, 256, 8, 64)}


def in_steps(q, k, v, mask):
    store = KeyValues(k, v)
    return store.weighted_sum(masks.masked_softmax(store.scores(q), mask))


def in_one(q, k, v, mask):
    return attention.fused_attention(q, k, v, mask)


def with_gradients(function, arrays, mask, jit):
    """Return a call without arguments that runs forward and backward."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        @tf.function(jit_compile=jit)
        def step(q, k, v):
            with tf.GradientTape() as tape:
                tape.watch((q, k, v))
                loss = tf.reduce_sum(function(q, k, v, mask) ** 2)
            return tape.gradient(loss, (q, k, v))

        tensors = [tf.constant(a) for a in arrays]
        return lambda: [g.numpy() for g in step(*tensors)]
    if backend == "jax":
        import jax

        step = jax.jit(
            jax.grad(lambda q, k, v: ops.sum(function(q, k, v, mask) ** 2), argnums=(0, 1, 2))
        )
        tensors = [ops.convert_to_tensor(a) for a in arrays]
        return lambda: jax.block_until_ready(step(*tensors))
    import torch

    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    return lambda: torch.autograd.grad((function(*tensors, mask) ** 2).sum(), tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    backend, rng = keras.backend.backend(), np.random.default_rng(3)
    for name, (batch, length, heads, width) in SHAPES.items():
        arrays = [rng.normal(size=(batch, length, heads, width)).astype("float32") for _ in "qkv"]
        arrays[0] *= width**-0.5
        lengths = rng.integers(length // 2, length + 1, size=batch)
        mask = ops.convert_to_tensor((np.arange(length) < lengths[:, None])[:, None, None])
        compilations = (False, True) if backend == "tensorflow" else (True,)
        contenders = {
            f"{way.__name__}{' (XLA)' if jit and backend == 'tensorflow' else ''}": with_gradients(
                way, arrays, mask, jit
            )
            for jit in compilations
            for way in (in_steps, in_one)
        }
        print(f"\n{backend}, {name}: batch {batch}, length {length}, {heads} heads of {width}")
        print(measure.table(measure.in_turn(contenders, rounds=arguments.rounds), "in_steps"))


if __name__ == "__main__":
    main()
