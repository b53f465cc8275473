"""Runs every case of `streams_reference` on whatever backend is set, and stores what came out.

Run as a program by `test_stream_schemes.py`, for JAX and torch.
"""

import sys

import keras
import numpy as np
from streams_reference import KINDS, ONE_STREAM, Stack, array, gradients, random

from keras_addnorm.layers import TransformerEncoder
from keras_addnorm.schemes.mhc import sinkhorn


def run():
    x, found = random(2, 3, 8), {}
    for case, scheme in (KINDS | ONE_STREAM).items():
        stack = Stack(scheme, "float32", noise=0.3, layers=1)
        found[f"{case}/value"], of_weights = gradients(stack, x)
        for index, gradient in enumerate(of_weights):
            found[f"{case}/{index}"] = gradient
    return found


def checkpointing(scheme):
    """Return the outputs and weights after two steps, with activations kept and made again."""
    found = []
    for again in (False, True):
        keras.utils.set_random_seed(2)
        stack = TransformerEncoder(
            2, num_heads=2, intermediate_dim=5, scheme=scheme, gradient_checkpointing=again
        )
        inputs = keras.Input((3, 8))
        model = keras.Model(inputs, stack(inputs))
        model.compile("sgd", "mse", jit_compile=keras.backend.backend() == "jax")
        x = random(4, 3, 8).astype("float32")
        model.fit(x, np.cos(x), epochs=2, batch_size=4, verbose=0)
        found.append([array(weight) for weight in model.weights])
    return found


def gradients_of_sinkhorn():
    """Return gradients in float32 where a row, or a column, is nothing beside the other."""
    import jax

    weights, far = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[0.0, -1.0], [-50.0, -70.0]])
    slope = jax.grad(lambda x: (sinkhorn(x, 20) * weights).sum())
    return [array(slope(logits.astype("float32"))) for logits in (far, far.T)]


if __name__ == "__main__":
    results = run()
    if keras.backend.backend() == "jax":  # The others divide twice, and square nothing.
        for found in gradients_of_sinkhorn():
            assert np.isfinite(found).all(), found
            assert np.abs(found).max() > 0.1
    # Its state grows from layer to layer.
    for kept, again in zip(*checkpointing("attention_residuals"), strict=True):
        np.testing.assert_allclose(kept, again, rtol=1e-5, atol=1e-6)
    np.savez(sys.argv[1], **results)
