"""Engines: fast implementations of a search's loop, cache and products for each kind of backend.

The search algorithms of `keras_addnorm.decoding` do not depend on them. `XLAEngine` is for XLA, JAX
and torch, `TFGraphEngine` for graphs of TensorFlow without XLA.
"""

from __future__ import annotations

import keras

from keras_addnorm.decoding.engine.base import Engine
from keras_addnorm.decoding.engine.tf_graph import TFGraphEngine
from keras_addnorm.decoding.engine.xla import XLAEngine

__all__ = ["Engine", "TFGraphEngine", "XLAEngine", "engine_for"]


def engine_for(jit_compile: bool = True) -> Engine:
    """Return the engine of the Keras backend; `jit_compile` says whether TensorFlow uses XLA."""
    if jit_compile or keras.backend.backend() != "tensorflow":
        return XLAEngine()
    return TFGraphEngine()
