"""The engine for XLA, JAX and torch: shapes that do not change, and products without copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_addnorm.decoding.engine.base import Engine, Grow
from keras_addnorm.decoding.engine.beam_cache import BeamDecoder, TransposedKV, can_share_caches
from keras_addnorm.decoding.engine.grouped_growth import run_in_groups, stage_lengths
from keras_addnorm.decoding.engine.loops import AnyState, LoopOf
from keras_addnorm.decoding.engine.views import Substitute, substitute, variables_of
from keras_addnorm.decoding.engine.vocabulary import (
    VOCABULARY_PROJECTION,
    TransposedEmbedding,
    shortlist_projection,
    transposed_embedding,
)
from keras_addnorm.decoding.search_inputs import Hypotheses, SearchInputs
from keras_addnorm.layers.positional_embedding import PositionalEmbedding
from keras_addnorm.layers.projection import Projection
from keras_addnorm.layers.shapes import first_size, size_of
from keras_addnorm.layers.stacks import TransformerEncoder

Tensor = Any

_FEW_ROWS = range(2, 17)
"""Numbers of rows for which a loop reads the table of embeddings transposed.

One row is a product of its own that reads the table as it lies, and of many rows transposing the
table is a small part. In between XLA would transpose it at each step.
"""

_NUM_SLICES = 4
"""Slices of a kernel that one row is multiplied with: more of them bring nothing."""

_SMALLEST_KERNEL = 2**17
"""Kernels with fewer numbers are left whole: their slices would wait for each other for longer."""


@dataclasses.dataclass(frozen=True)
class XLAEngine(Engine):
    """For XLA, JAX and torch.

    Args:
        transposed_table: Returns the transposed table `(D, V)` of embeddings `(V, D)` if it is
            there already, else `None`.
    """

    transposed_table: Callable[[Any], Tensor | None] | None = None

    def view(
        self,
        decoder: Any,
        rows_per_sentence: int,
        rows_per_beam: int,
        tokens: Tensor | None = None,
        share_caches: bool = True,
    ) -> Any:
        """Share caches, transpose the table for a few rows, and split large kernels for one."""
        # Torch compiles nothing, and takes longer for the slices' calls than it gains by them.
        splits_kernels = keras.backend.backend() != "torch"

        def replace(name: str, layer: Any) -> Any:
            if isinstance(layer, TransformerEncoder):
                return layer
            if share_caches and can_share_caches(layer):
                return Substitute(
                    BeamDecoder,
                    {
                        "original": layer,
                        "layout": TransposedKeyValues,
                        "rows_per_beam": rows_per_beam,
                        "rows_per_sentence": rows_per_sentence,
                    },
                )
            if type(layer) is PositionalEmbedding:
                table = self.transposed_table and self.transposed_table(layer.embeddings)
                return transposed_embedding(layer, tokens, table, EmbeddingForFewRows)
            if type(layer) is not Projection:
                return None
            if name == VOCABULARY_PROJECTION and tokens is not None:
                return shortlist_projection(layer, tokens)
            return Substitute(SplitKProjection) if splits_kernels and can_split(layer) else None

        return substitute(decoder, replace)

    def open_sizes(self, source_ids: Tensor) -> Tensor:
        """Return them as they are: XLA knows each size."""
        return source_ids

    def first_length(self, longest: int, source_length: int | Tensor) -> int | Tensor:
        """Return a little more than the length of the sources."""
        return stage_lengths(longest, source_length)[0]

    def run_with_growing_cache(
        self,
        loop_of: LoopOf[AnyState],
        state: AnyState,
        inputs: SearchInputs,
        num_hypotheses: int,
        grow: Grow,
    ) -> Hypotheses:
        """Run a loop for each length, for groups of sentences."""
        lengths = stage_lengths(inputs.max_length, size_of(inputs.source_ids, 1))
        return run_in_groups(lengths, loop_of, state, inputs, grow)

    def fill_columns(self, x: Tensor, columns: tuple[int, ...], value: float) -> Tensor:
        """Choose between the numbers and the value."""
        places = ops.arange(x.shape[-1], dtype="int32")
        is_filled = ops.equal(places, columns[0])
        for column in columns[1:]:
            is_filled = ops.logical_or(is_filled, ops.equal(places, column))
        return ops.where(is_filled, value, x)

    def argmax(self, x: Tensor) -> Tensor:
        """Make two plain reductions of it.

        XLA makes one scalar loop of an argmax, which takes four times as long.
        """
        best = ops.max(x, axis=-1, keepdims=True)
        places = ops.arange(x.shape[-1], dtype="int32")
        return ops.min(ops.where(ops.equal(x, best), places, x.shape[-1] - 1), axis=-1)

    def compile(
        self, function: Callable[..., Any], inputs: Any, decoder: Any
    ) -> Callable[..., Any]:
        """Compile with XLA on TensorFlow and JAX; torch runs the function as it is."""
        backend = keras.backend.backend()
        if backend == "tensorflow":
            return _compile_with_tensorflow(function, inputs)
        if backend == "jax":
            return _compile_with_jax(function, decoder)
        return _without_gradients(function) if backend == "torch" else function


@dataclasses.dataclass(frozen=True)
class TransposedKeyValues:
    """Keys and values in the layout of `TransposedKV`, batch and heads as one axis.

    So they are in a product of matrices: between two of another shape XLA puts a copy. A
    `CacheLayout`, which documents the arguments.

    Args:
        stored: Keys `(B G, K, S n)` and values `(B G, S n, K)`.
        num_groups: G.
        slots: `(S n,)`, or `None`.
        rows_per_beam: n.
        is_one_beam: Not needed: a reshape that changes nothing costs nothing.
    """

    stored: TransposedKV
    num_groups: int
    slots: Tensor | None = None
    rows_per_beam: int = 1
    is_one_beam: bool = False

    @staticmethod
    def empty(shape: tuple[int | Tensor, int | Tensor, int, int], dtype: Any) -> TransposedKV:
        """Return an empty cache for keys of shape `(B, S, G, K)`."""
        batch, length, groups, width = shape
        return TransposedKV(
            ops.zeros((batch * groups, width, length), dtype=dtype),
            ops.zeros((batch * groups, length, width), dtype=dtype),
        )

    @staticmethod
    def transpose(keys: Tensor, values: Tensor, dtype: Any) -> TransposedKV:
        """Return keys and values of `(B, S, G, K)` in this layout."""
        # (B, S, G, K) -> (B, G, K, S) -> (B G, K, S); (B, S, G, K) -> (B, G, S, K) -> (B G, S, K)
        keys = ops.transpose(ops.cast(keys, dtype), (0, 2, 3, 1))
        values = ops.transpose(ops.cast(values, dtype), (0, 2, 1, 3))
        return TransposedKV(_flat(keys), _flat(values))

    @property
    def cache(self) -> TransposedKeyValues:
        """This."""
        return self

    def query_positions(self, num_queries: int | Tensor, index: Any) -> Tensor:
        """Return `index` for each hypothesis of a beam."""
        return ops.zeros((self.rows_per_beam,), dtype="int32") + index

    def extend(self, keys: Tensor, values: Tensor, index: Any) -> TransposedKeyValues:
        """Return this with one position more of each hypothesis, `(B, n, G, K)`."""
        new = self.transpose(keys, values, self.stored.keys.dtype)
        start = index * self.rows_per_beam
        stored = TransposedKV(
            ops.slice_update(self.stored.keys, [0, 0, start], new.keys),
            ops.slice_update(self.stored.values, [0, start, 0], new.values),
        )
        return dataclasses.replace(self, stored=stored)

    def key_positions(self) -> Tensor:
        """Return the position of each slot."""
        return self.slots

    def group_rows(self, queries: Tensor) -> Tensor:
        """Return the queries of all beams of a sentence as those of one row."""
        batch = ops.shape(self.stored.keys)[0] // self.num_groups
        return ops.reshape(queries, (batch, -1, *queries.shape[2:]))

    def scores(self, queries: Tensor) -> Tensor:
        """Return the product of each query with each key."""
        keys, (num_heads, width) = self.stored.keys, queries.shape[2:]
        length, num_keys = size_of(queries, 1), size_of(keys, 2)
        # (B, T, H, K) -> (B, H, T, K) -> (B G, H/G T, K)
        shape = (first_size(keys, length), num_heads // self.num_groups * length, width)
        rows = ops.reshape(ops.transpose(queries, (0, 2, 1, 3)), shape)
        # (B G, H/G T, S) -> (B, H, T, S)
        batch = first_size(queries, length, num_keys)
        return ops.reshape(ops.matmul(rows, keys), (batch, num_heads, length, num_keys))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum of the values for each query."""
        values, num_heads, width = self.stored.values, weights.shape[1], self.stored.values.shape[2]
        length, num_keys = size_of(weights, 2), size_of(weights, 3)
        # (B, H, T, S) -> (B G, H/G T, S)
        num_rows = first_size(values, length, num_keys)
        shape = (num_rows, num_heads // self.num_groups * length, num_keys)
        sums = ops.matmul(ops.reshape(weights, shape), values)
        # (B G, H/G T, K) -> (B, H, T, K) -> (B, T, H, K)
        sums = ops.reshape(sums, (first_size(weights, length), num_heads, length, width))
        return ops.transpose(sums, (0, 2, 1, 3))

    def keys_and_values(self) -> tuple[Tensor, Tensor]:
        """Return keys and values, `(B, S, G, K)` each."""
        width, num_keys = ops.shape(self.stored.keys)[-2:]
        keys = ops.reshape(self.stored.keys, (-1, self.num_groups, width, num_keys))
        values = ops.reshape(self.stored.values, (-1, self.num_groups, num_keys, width))
        return ops.transpose(keys, (0, 3, 1, 2)), ops.transpose(values, (0, 2, 1, 3))


class EmbeddingForFewRows(TransposedEmbedding):
    """A view of an embedding that reads its transposed table for `_FEW_ROWS`."""

    def _product(self, x: Tensor) -> Tensor:
        def as_it_lies() -> Tensor:
            return ops.einsum("nd,vd->nv", x, self.table)

        def transposed() -> Tensor:
            return ops.matmul(x, self.transposed_table)

        rows = size_of(x, 0)
        if isinstance(rows, int):
            return transposed() if rows in _FEW_ROWS else as_it_lies()
        # XLA, which knows their number when it compiles, leaves the other one out.
        is_few = ops.logical_and(rows >= _FEW_ROWS[0], rows <= _FEW_ROWS[-1])
        return ops.cond(is_few, transposed, as_it_lies)


class SplitKProjection(Projection):
    """A view of a projection that multiplies a single row slice by slice of its kernel (split-K).

    A loop that decodes one sentence takes the time in which the weights come from memory, and
    compilers give the product of one row to one core. Products of several rows stay whole.
    """

    def _product(self, x: Tensor, training: bool | None) -> Tensor:
        # (N, D) -> (N, units)
        num_rows, width = size_of(x, 0), x.shape[-1]
        if isinstance(num_rows, int):
            if num_rows != 1:
                return super()._product(x, training)
            count: int | Tensor = _NUM_SLICES
        else:  # XLA knows it when it compiles.
            count = ops.where(ops.equal(num_rows, 1), _NUM_SLICES, 1)
        # (N, D) -> (C, N, D / C), and (D, units) -> (C, D / C, units), which moves nothing
        rows = ops.transpose(ops.reshape(x, (-1, count, width // count)), (1, 0, 2))
        slices = ops.reshape(self.kernel, (count, width // count, self.units))
        y = ops.reshape(ops.sum(ops.matmul(rows, slices), axis=0), (-1, self.units))
        if self.bias is not None:
            y = ops.add(y, self.bias)
        return y if self.activation is None else self.activation(y)


def can_split(layer: Projection) -> bool:
    """Return whether a projection's kernel is large enough, and can be cut into slices."""
    width = layer.input_spec.axes[-1]
    return width * layer.units >= _SMALLEST_KERNEL and width % _NUM_SLICES == 0


def _flat(x: Tensor) -> Tensor:
    # (B, G, M, N) -> (B G, M, N)
    return ops.reshape(x, (-1, size_of(x, 2), size_of(x, 3)))


def _compile_with_tensorflow(function: Callable[..., Any], inputs: Any) -> Callable[..., Any]:
    import tensorflow as tf

    traced = tf.function(function, jit_compile=True, autograph=False)
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
