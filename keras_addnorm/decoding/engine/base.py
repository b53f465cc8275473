"""The interface of an engine: loops over positions, views of a decoder, compilation."""

from __future__ import annotations

import abc
import dataclasses
import operator
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import keras
import numpy as np
from keras import ops

from keras_addnorm.basics.tensors import to_tensor
from keras_addnorm.decoding.engine.beam_cache import BeamDecoder, CacheLayout, can_share_caches
from keras_addnorm.decoding.engine.views import (
    ListedTokens,
    Substitute,
    TransposedEmbedding,
    is_listed_projection,
    layers_and_variables_of,
    shortlist_projection,
    substitute,
    transposed_embedding,
    variables_of,
)
from keras_addnorm.decoding.search_inputs import Cache, Hypotheses, SearchInputs
from keras_addnorm.decoding.tensor_ops import take
from keras_addnorm.layers.positional_embedding import PositionalEmbedding
from keras_addnorm.layers.shapes import size_of
from keras_addnorm.layers.stacks import TransformerEncoder

Tensor = Any


class State(Protocol):
    """The state of a loop: a named tuple with a step and a cache.

    The first axis of every tensor counts sentences, or equal blocks of rows of each sentence; a
    scalar belongs to all of them.
    """

    @property
    def index(self) -> Tensor:
        """The step, from 0: the position that is written next."""

    @property
    def cache(self) -> Cache:
        """What the decoder keeps."""

    def _replace(self, *, cache: Cache) -> Self:
        """Return the same with another cache."""


AnyState = TypeVar("AnyState", bound=State)


@dataclasses.dataclass(frozen=True)
class Loop(Generic[AnyState]):
    """A loop over the positions of some sentences.

    Args:
        is_running: Which sentences have not ended, `(B,)`.
        advance: Decodes one position. The hypotheses of finished sentences do not change. Returns
            a tuple, as the body of `ops.while_loop`.
        hypotheses: Returns the hypotheses; the entries of unfinished sentences are undefined.
    """

    is_running: Callable[[AnyState], Tensor]
    advance: Callable[[AnyState], tuple[AnyState]]
    hypotheses: Callable[[AnyState], Hypotheses]


Grow = Callable[[Cache, "int | Tensor"], Cache]
"""`grow(cache, length)`: the cache, grown to more positions."""


@dataclasses.dataclass(frozen=True)
class GrowingLoop(Generic[AnyState]):
    """A loop whose cache grows, for any sentences.

    Args:
        loop_of: Returns the loop for some inputs: all sentences, or some of them.
        num_hypotheses: Number of hypotheses of each sentence in the loop, M.
        grow: Grows the cache to more positions.
    """

    loop_of: Callable[[SearchInputs], Loop[AnyState]]
    num_hypotheses: int
    grow: Grow


def run_until_few(
    loop: Loop[AnyState], state: AnyState, few: int | Tensor, length: int | Tensor
) -> AnyState:
    """Run a loop until `few` sentences are unfinished, or `length` positions are decoded."""

    def goes_on(state: AnyState) -> Tensor:
        num_running = ops.sum(ops.cast(loop.is_running(state), "int32"))
        return ops.logical_and(num_running > few, state.index < length)

    (state,) = ops.while_loop(goes_on, loop.advance, (state,))
    return state


def select_sentences(state: AnyState, sentences: Tensor, number: int | Tensor) -> AnyState:
    """Return the state of some of `number` sentences, by their places `(b,)`, int32."""

    def selected(x: Tensor) -> Tensor:
        # The empty cache of a pruned sublayer has no columns.
        if len(x.shape) == 0 or 0 in x.shape[1:]:
            return x
        rest = [size_of(x, axis) for axis in range(1, len(x.shape))]
        blocks = ops.reshape(x, (number, -1, *rest))
        return ops.reshape(take(blocks, sentences), (-1, *rest))

    part: AnyState = keras.tree.map_structure(selected, state)
    return part


@dataclasses.dataclass(frozen=True)
class Engine(abc.ABC):
    """Runs a search fast on one kind of backend, with the same results as any other engine.

    An engine is a hashable value: a compiled search is kept for each.

    Args:
        transposed_table: Returns the transposed table `(D, V)` of embeddings `(V, D)` if it
            exists already, else `None`.
    """

    jit_compile: ClassVar[bool | None] = None
    """Whether TensorFlow compiles with XLA; `None` for what it does by itself."""

    transposed_table: Callable[[Any], Tensor | None] | None = None

    @property
    @abc.abstractmethod
    def layout(self) -> CacheLayout:
        """The layout of shared caches."""

    @property
    @abc.abstractmethod
    def embedding(self) -> type[TransposedEmbedding]:
        """The view of an embedding."""

    @abc.abstractmethod
    def substitute_for(self, layer: Any) -> Substitute | None:
        """Return what stands for a layer that every engine leaves alone; `None` for itself."""

    def view(
        self,
        decoder: Any,
        rows_per_sentence: int,
        rows_per_beam: int,
        listed: ListedTokens | None = None,
        share_caches: bool = True,
    ) -> Any:
        """Return a view of a decoder for a loop that decodes a token a step.

        Args:
            decoder: A `Decoder`, which does not change.
            rows_per_sentence: Number of rows that are decoded for each sentence.
            rows_per_beam: Number of adjacent rows that may continue each other.
            listed: The tokens of a shortlist: a vocabulary projection that the engine knows
                computes their logits alone. `None` for all.
            share_caches: Whether the hypotheses of a beam share their caches, if they can.

        Returns:
            A `Decoder` with the same variables.
        """

        def replace(name: str, layer: Any) -> Any:
            if isinstance(layer, TransformerEncoder):
                return layer
            if share_caches and can_share_caches(layer):
                return Substitute(
                    BeamDecoder,
                    {
                        "original": layer,
                        "layout": self.layout,
                        "rows_per_beam": rows_per_beam,
                        "rows_per_sentence": rows_per_sentence,
                    },
                )
            if type(layer) is PositionalEmbedding:
                table = self.transposed_table and self.transposed_table(layer.embeddings)
                return transposed_embedding(layer, listed, table, self.embedding)
            if listed is not None and is_listed_projection(name, layer, listed):
                return shortlist_projection(layer, listed)
            return self.substitute_for(layer)

        return substitute(decoder, replace)

    @abc.abstractmethod
    def open_sizes(self, source_ids: Tensor) -> Tensor:
        """Return the source ids `(B, S)`, their static sizes hidden if the engine changes them."""

    @abc.abstractmethod
    def first_length(self, longest: int, source_length: int | Tensor) -> int | Tensor:
        """Return the initial length of caches, from the maximum and the length of the sources."""

    @abc.abstractmethod
    def run_with_growing_cache(
        self, growing: GrowingLoop[AnyState], state: AnyState, inputs: SearchInputs
    ) -> Hypotheses:
        """Run a loop over positions until each sentence has ended, or all positions are decoded.

        Attention reads the whole cache at each step, used or not, and most outputs are far shorter
        than the maximum. So a search begins with a small cache, and grows it when it is full. A
        step also takes the same time for finished sentences. So a search drops finished sentences
        from the batch once they are many.

        Args:
            growing: The loop.
            state: The state before the first step, its cache of `first_length`.
            inputs: All sentences.

        Returns:
            The hypotheses of all sentences.
        """

    @abc.abstractmethod
    def fill_columns(self, x: Tensor, columns: tuple[int, ...], value: float) -> Tensor:
        """Return `x` `(N, V)` with `value` in those of the columns that it has."""

    @abc.abstractmethod
    def argmax(self, x: Tensor) -> Tensor:
        """Return the place of the largest number of each row, the first of equals: `(N,)` int32."""

    def compile(
        self, function: Callable[..., Any], inputs: Any, decoder: Any
    ) -> Callable[..., Any]:
        """Return a function of tensors, compiled for inputs of one shape; torch runs it as it is.

        Args:
            function: The function.
            inputs: Arrays of the shapes and dtypes that it will be called with.
            decoder: The object whose variables the function reads.

        Returns:
            The compiled function.
        """
        backend = keras.backend.backend()
        if backend == "jax":
            return _compile_with_jax(function, decoder)
        if backend != "tensorflow":
            return _without_gradients(function) if backend == "torch" else function
        import tensorflow as tf

        traced = tf.function(function, jit_compile=self.jit_compile, autograph=False)
        concrete: Callable[..., Any] = traced.get_concrete_function(
            *(tf.TensorSpec(array.shape, array.dtype) for array in inputs)
        )
        return concrete


def _compile_with_jax(function: Callable[..., Any], decoder: Any) -> Callable[..., Any]:
    import jax

    variables = variables_of(decoder)

    def pure(values: list[Any], *inputs: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*inputs)

    compiled = jax.jit(pure)
    # The weights are arguments: as constants they would be frozen at the first call.
    return lambda *inputs: compiled([variable.value for variable in variables], *inputs)


def _without_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return function(*inputs)

    return run


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
