"""Compiles a function of token ids with whatever the Keras backend compiles with.

The one file outside `data/` and `serving/` that may import a backend, and only when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

Tensor = Any
Decoder = Callable[[Tensor], tuple[Tensor, Tensor]]


def compile_decoder(
    model: keras.Model, decoder: Decoder, shape: tuple[int, int], jit_compile: bool
) -> Decoder:
    """Return `decoder`, compiled for one shape.

    Args:
        model: The model whose weights `decoder` reads.
        decoder: A function of token ids.
        shape: The shape of the token ids.
        jit_compile: Whether TensorFlow compiles with XLA. JAX always does, torch runs eagerly.

    Returns:
        A function of int32 token ids of that shape.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        function = tf.function(decoder, jit_compile=jit_compile, autograph=False)
        concrete: Decoder = function.get_concrete_function(tf.TensorSpec(shape, tf.int32))
        return concrete
    if backend == "jax":
        return _compile_with_jax(model, decoder)
    if backend == "torch":
        return _without_gradients(decoder)
    return decoder


def _compile_with_jax(model: keras.Model, decoder: Decoder) -> Decoder:
    import jax

    def pure(values: list[Any], source_ids: Any) -> tuple[Any, Any]:
        with keras.StatelessScope(state_mapping=list(zip(model.variables, values, strict=True))):
            return decoder(source_ids)

    compiled = jax.jit(pure)
    # The weights are arguments: as constants they would be frozen at the first call.
    return lambda source_ids: compiled([v.value for v in model.variables], source_ids)


def _without_gradients(decoder: Decoder) -> Decoder:
    import torch

    def decode(source_ids: Any) -> tuple[Any, Any]:
        with torch.no_grad():
            return decoder(source_ids)

    return decode
