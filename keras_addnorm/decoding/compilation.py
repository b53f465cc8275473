"""Compiles functions of tensors once for each shape of their inputs, and runs them."""

from __future__ import annotations

import dataclasses
import operator
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import keras
import numpy as np

from keras_addnorm.basics.arrays import to_tensor
from keras_addnorm.decoding.engine import Engine
from keras_addnorm.decoding.engine.views import layers_and_variables_of

Tensor = Any
Function = Callable[..., Any]
"""Takes tensors, returns tensors in any structure."""

_MEMO, _TRACED_LAYERS = "_compiled_decoders", "_traced_layers"


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
            `__dict__`, until its layers get other variables (LoRA, quantisation) or a model is
            compiled again; an object without a `__dict__` compiles anew each time.
        key: What the function does, besides its inputs: equal keys, equal functions.
        function: The function.
        inputs: Its inputs.
        engine: Compiles it.

    Returns:
        What the function returns, as NumPy arrays.
    """
    # In the object's `__dict__`, so that compiled functions are freed together with the object, to
    # which they refer. Keras does not track entries of `__dict__` as state.
    attributes = getattr(decoder, "__dict__", {})
    compiled = attributes.setdefault(_MEMO, {})
    if _TRACED_LAYERS not in attributes:
        attributes[_TRACED_LAYERS] = _TracedLayers.of(decoder)
    if attributes[_TRACED_LAYERS].have_changed():
        compiled.clear()
    key = (key, tuple((array.shape, array.dtype.str) for array in inputs), engine)
    if key not in compiled:
        compiled[key] = engine.compile(function, inputs, decoder)
    tensors = [to_tensor(array) for array in inputs]
    return keras.tree.map_structure(keras.ops.convert_to_numpy, compiled[key](*tensors))


@dataclasses.dataclass
class _TracedLayers:
    """The layers whose computations were traced, and what tells that they compute otherwise now.

    Layers and variables of a plain object are looked for once: it may hold a lot besides.

    Args:
        layers: The outermost layers.
        compilations: What `keras.Model.compile` made last, for each of them.
        variables: Their variables, which this keeps nobody from freeing.
    """

    layers: list[keras.layers.Layer]
    compilations: list[Any] = dataclasses.field(default_factory=list)
    variables: list[weakref.ref[keras.Variable]] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, decoder: Any) -> _TracedLayers:
        layers, _ = layers_and_variables_of(decoder)
        return cls(layers)

    def have_changed(self) -> bool:
        """Return whether the layers have changed since the last call of this method."""
        # Not by their identities: those of freed objects come again.
        compilations = [getattr(layer, "_compile_config", None) for layer in self.layers]
        variables = [variable for layer in self.layers for variable in layer.variables]
        are_same = _are_same(self.compilations, compilations) and _are_same(
            [reference() for reference in self.variables], variables
        )
        self.compilations, self.variables = compilations, list(map(weakref.ref, variables))
        return not are_same


def _are_same(before: Sequence[Any], now: Sequence[Any]) -> bool:
    return len(before) == len(now) and all(map(operator.is_, before, now))
