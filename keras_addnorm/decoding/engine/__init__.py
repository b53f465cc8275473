"""Engines: how a search runs fast on one kind of machine.

The algorithms of `keras_addnorm.decoding` know nothing of it. `XLAEngine` is for XLA, JAX and
torch, `TFGraphEngine` for graphs of TensorFlow without XLA.
"""

from __future__ import annotations

import keras

from keras_addnorm.decoding.engine.base import Engine
from keras_addnorm.decoding.engine.tf_graph import TFGraphEngine
from keras_addnorm.decoding.engine.xla import XLAEngine

__all__ = ["Engine", "TFGraphEngine", "XLAEngine", "engine_for"]


def engine_for(jit_compile: bool = True) -> Engine:
    """Return the engine of the Keras backend.

    Args:
        jit_compile: Whether TensorFlow compiles with XLA. JAX always does, torch never.

    Returns:
        The engine.
    """
    if jit_compile or keras.backend.backend() != "tensorflow":
        return XLAEngine()
    return TFGraphEngine()
