"""Runs functions of tensors that are compiled once for each shape of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import keras
import numpy as np

from keras_addnorm.decoding.engine import Engine

Tensor = Any
Function = Callable[..., Any]
"""Takes tensors, returns tensors in any structure."""

_MEMO = "_compiled_decoders"


def run_compiled(
    decoder: Any,
    key: Hashable,
    function: Function,
    inputs: tuple[np.ndarray, ...],
    engine: Engine,
) -> Any:
    """Run a function of tensors, compiled once for each key and each shape of its inputs.

    Args:
        decoder: The object whose variables the function reads. What was compiled is kept in its
            `__dict__`; an object without one compiles anew each time.
        key: What the function does, besides its inputs: equal keys, equal functions.
        function: The function.
        inputs: Its inputs.
        engine: Compiles it.

    Returns:
        What the function returns, as NumPy arrays.
    """
    # In the object's own dict, so that compiled functions live and die with it: they refer to it.
    # Keras does not track them as state.
    compiled = getattr(decoder, "__dict__", {}).setdefault(_MEMO, {})
    key = (key, tuple((array.shape, array.dtype.str) for array in inputs), engine)
    if key not in compiled:
        compiled[key] = engine.compile(function, inputs, decoder)
    tensors = [keras.ops.convert_to_tensor(array) for array in inputs]
    return keras.tree.map_structure(keras.ops.convert_to_numpy, compiled[key](*tensors))
