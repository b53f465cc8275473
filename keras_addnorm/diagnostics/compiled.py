"""Compiles functions that diagnostics call repeatedly on a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

Tensor = Any


def compiled(model: Any, function: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return a function traced once (not on torch) that reads the model's present weights."""
    return _BACKENDS[keras.backend.backend()](model, function)


def _tensorflow(model: Any, function: Callable[[], Tensor]) -> Callable[[], Tensor]:
    import tensorflow as tf

    # Without XLA: a graph that runs every hundredth step does not repay XLA's compilation.
    traced: Callable[[], Tensor] = tf.function(function, autograph=False)
    return traced


def _jax(model: Any, function: Callable[[], Tensor]) -> Callable[[], Tensor]:
    import jax

    def pure(values: list[Tensor]) -> Tensor:
        with keras.StatelessScope(state_mapping=list(zip(model.variables, values, strict=True))):
            return function()

    traced = jax.jit(pure)

    def run() -> Tensor:
        # While `fit` runs, the weights are elsewhere, and the variables are empty.
        if hasattr(model, "jax_state_sync"):
            model.jax_state_sync()
        return traced([variable.value for variable in model.variables])

    return run


def _torch(model: Any, function: Callable[[], Tensor]) -> Callable[[], Tensor]:
    import torch

    def run() -> Tensor:
        # Functions that need gradients (`loss_gradients`) enable them.
        with torch.no_grad():
            return function()

    return run


_BACKENDS: dict[str, Callable[[Any, Callable[[], Tensor]], Callable[[], Tensor]]] = {
    "tensorflow": _tensorflow,
    "jax": _jax,
    "torch": _torch,
}
