"""The engine for XLA, JAX and torch: static shapes, and products without copies."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_addnorm.decoding.engine.base import (
    AnyState,
    Engine,
    GrowingLoop,
    run_until_few,
    select_sentences,
)
from keras_addnorm.decoding.engine.beam_cache import CacheLayout, TransposedKV
from keras_addnorm.decoding.engine.views import Substitute, TransposedEmbedding
from keras_addnorm.decoding.search_inputs import Hypotheses, SearchInputs
from keras_addnorm.decoding.tensor_ops import take
from keras_addnorm.layers.projection import Projection
from keras_addnorm.layers.shapes import first_size, size_of

Tensor = Any

# Growing caches with static shapes: one loop for each cache length, for groups of sentences. XLA
# compiles the loop of each length separately. So there are few lengths, and the first is enough for
# most outputs: a little longer than the sources. Once only an eighth of a large batch is
# unfinished, the loop stops, and the rest continues as a smaller batch. Sentences that are
# unfinished when the cache is full continue in groups of that size, one group after the other.
_FIRST, _MARGIN, _GROWTH = 32, 16, 8
"""The least first cache length, its margin over the source length, and the factor from each length
to the next. The factor is large because every length is a loop to compile."""

_LARGE_BATCH, _GROUPS = 16, 8
"""The least number of sentences of a large batch, and the number of groups it is divided into."""


def stage_lengths(longest: int, source_length: int | Tensor) -> list[int | Tensor]:
    """Return the cache lengths of the successive loops.

    Args:
        longest: Number of positions at most.
        source_length: Number of the sources' positions, S, padding included.

    Returns:
        Lengths, `longest` last. Their number does not depend on S, which may be a tensor. From
        short sources each is at least twice as long as the one before; from long ones some may be
        equal.
    """
    largest = ops.maximum if ops.is_tensor(source_length) else max
    smallest = ops.minimum if ops.is_tensor(source_length) else min
    first, growth, lengths = largest(source_length + _MARGIN, _FIRST), 1, []
    while 2 * growth * _FIRST <= longest:
        lengths.append(smallest(growth * first, longest))
        growth *= _GROWTH
    return [*lengths, longest]


def _few(number: int | Tensor) -> int | Tensor:
    """Return how many unfinished sentences of a batch continue as a smaller one; 0 for never."""
    if isinstance(number, int):
        return number // _GROUPS if number >= _LARGE_BATCH else 0
    return ops.where(number < _LARGE_BATCH, 0, number // _GROUPS)


def _rank(waits: Tensor, waited: Tensor) -> Tensor:
    """Return the place of each sentence in the order of groups, `(B,)`.

    Waiting sentences come first. Finished sentences fill up the last group; sentences that an
    earlier group has continued come last, because they would run a second time.
    """
    # All pairs are compared: compiling a sort takes XLA longer than running the comparisons.
    number = size_of(waits, 0)
    places = ops.arange(number, dtype="int32")
    priority = ops.where(waits, 0, 1 + ops.cast(waited, "int32"))
    keys = priority * number + places
    return ops.sum(ops.cast(keys < ops.expand_dims(keys, -1), "int32"), axis=-1)


def _in_order(rank: Tensor) -> Tensor:
    """Return the sentences in the order of their ranks, `(B,)`."""
    places = ops.arange(size_of(rank, 0), dtype="int32")
    is_it = ops.equal(rank, ops.expand_dims(places, -1))
    return ops.sum(ops.where(is_it, places, 0), axis=-1)


def _merge(found: Hypotheses, new: Hypotheses, rank: Tensor, size: int | Tensor) -> Hypotheses:
    """Return the hypotheses, those of the first `size` ranks replaced by new ones."""
    places = ops.minimum(rank, ops.cast(size - 1, "int32"))

    def merged(before: Tensor, after: Tensor) -> Tensor:
        is_new = ops.reshape(rank < size, (-1, *[1] * (len(before.shape) - 1)))
        return ops.where(is_new, take(after, places), before)

    return Hypotheses(
        merged(found.sequences, new.sequences),
        merged(found.scores, new.scores),
        ops.minimum(found.bad_step, new.bad_step),
    )


_FEW_ROWS = range(2, 17)
"""Numbers of rows for which a loop reads the transposed table of embeddings.

XLA multiplies one row with the table as it is stored. For more rows it transposes the table at each
step, which takes a small part of the time only if the rows are many.
"""

_NUM_SLICES = 4
"""Number of slices of a kernel for a product of one row; more slices bring nothing."""

_SMALLEST_KERNEL = 2**17
"""Kernels with fewer numbers stay whole: synchronising slices would take longer than it saves."""


@dataclasses.dataclass(frozen=True)
class XLAEngine(Engine):
    """The engine for XLA, JAX and torch."""

    jit_compile = True

    @property
    def layout(self) -> CacheLayout:
        """The layout of products without copies."""
        return TransposedKeyValues

    @property
    def embedding(self) -> type[TransposedEmbedding]:
        """The view that reads the transposed table for a few rows."""
        return EmbeddingForFewRows

    def substitute_for(self, layer: Any) -> Substitute | None:
        """Split large kernels for one row."""
        # Torch is not compiled: the extra calls for the slices would take longer than they save.
        splits_kernels = keras.backend.backend() != "torch"
        if type(layer) is Projection and splits_kernels and can_split(layer):
            return Substitute(SplitKProjection)
        return None

    def open_sizes(self, source_ids: Tensor) -> Tensor:
        """Return the source ids unchanged: XLA knows each size."""
        return source_ids

    def first_length(self, longest: int, source_length: int | Tensor) -> int | Tensor:
        """Return a little more than the length of the sources."""
        return stage_lengths(longest, source_length)[0]

    def run_with_growing_cache(
        self,
        growing: GrowingLoop[AnyState],
        state: AnyState,
        inputs: SearchInputs,
        lengths: list[int | Tensor] | None = None,
    ) -> Hypotheses:
        """Run one loop for each cache length; each continues what the one before left unfinished.

        Args:
            growing: The loop.
            state: The state before, its cache of the first length.
            inputs: The sentences.
            lengths: The cache lengths; `None` for those that fit the sources.

        Returns:
            The hypotheses of all sentences.
        """
        if lengths is None:
            lengths = stage_lengths(inputs.max_length, size_of(inputs.source_ids, 1))
        here, *further = lengths
        loop, size = growing.loop_of(inputs), inputs.batch_size
        few = _few(size) if further else 0
        state = run_until_few(loop, state, few, here)
        found, is_running = loop.hypotheses(state), loop.is_running(state)
        if not further:
            return found
        group_size = ops.where(few > 0, few, size) if ops.is_tensor(few) else few or size

        def run_group(found: Hypotheses, waits: Tensor) -> tuple[Hypotheses, Tensor]:
            rank = _rank(waits, is_running)
            group = _in_order(rank)[:group_size]
            part = select_sentences(state, group, size)
            part = part._replace(cache=growing.grow(part.cache, further[0]))
            new = self.run_with_growing_cache(growing, part, inputs.of(group), further)
            waits = ops.logical_and(waits, rank >= group_size)
            return _merge(found, new, rank, group_size), waits

        start = (found, is_running)
        (found, _) = ops.while_loop(lambda found, waits: ops.any(waits), run_group, start)
        return found

    def fill_columns(self, x: Tensor, columns: tuple[int, ...], value: float) -> Tensor:
        """Select between the numbers and the value."""
        places = ops.arange(x.shape[-1], dtype="int32")
        is_filled = ops.equal(places, columns[0])
        for column in columns[1:]:
            is_filled = ops.logical_or(is_filled, ops.equal(places, column))
        return ops.where(is_filled, value, x)

    def argmax(self, x: Tensor) -> Tensor:
        """Return the argmax by two reductions: XLA's own is a scalar loop, four times as slow."""
        best = ops.max(x, axis=-1, keepdims=True)
        places = ops.arange(x.shape[-1], dtype="int32")
        return ops.min(ops.where(ops.equal(x, best), places, x.shape[-1] - 1), axis=-1)


@dataclasses.dataclass(frozen=True)
class TransposedKeyValues:
    """Keys and values in the layout of `TransposedKV`, batch and heads as one axis.

    XLA multiplies arrays of this shape as they are, and copies arrays of four axes first.
    `CacheLayout` documents the arguments.

    Args:
        stored: Keys `(B G, K, S n)` and values `(B G, S n, K)`.
        num_groups: Number of heads, G.
        slots: `(S n,)`, or `None`.
        rows_per_beam: Number of hypotheses that write at a position, n.
        is_one_beam: Has no effect: a reshape that changes nothing costs nothing.
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

    @staticmethod
    def write_state(state: Tensor, new: Tensor) -> Tensor:
        """Return the new state."""
        return new

    @property
    def cache(self) -> TransposedKeyValues:
        """The object itself."""
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
        def untransposed() -> Tensor:
            return ops.einsum("nd,vd->nv", x, self.table)

        def transposed() -> Tensor:
            return ops.matmul(x, self.transposed_table)

        rows = size_of(x, 0)
        if isinstance(rows, int):
            return transposed() if rows in _FEW_ROWS else untransposed()
        # XLA knows the number of rows when it compiles, and removes the other branch.
        is_few = ops.logical_and(rows >= _FEW_ROWS[0], rows <= _FEW_ROWS[-1])
        return ops.cond(is_few, transposed, untransposed)

    def _add_bias(self, logits: Tensor) -> Tensor:
        # Of a product of one row and a sum, XLA makes one loop on one thread, 2.5 times as slow for
        # a table of 58,101 tokens. Of a product and a difference it does not.
        return ops.subtract(logits, ops.negative(self.logits_bias))


class SplitKProjection(Projection):
    """A view of a projection that multiplies a single row by slices of its kernel (split-K).

    A loop that decodes one sentence is bound by reading the weights from memory, and compilers give
    the product of one row to one core. Products of several rows stay whole.
    """

    def _product(self, x: Tensor, training: bool | None) -> Tensor:
        # (N, D) -> (N, units)
        num_rows = size_of(x, 0)
        if isinstance(num_rows, int):
            if num_rows != 1:
                return super()._product(x, training)
            count: int | Tensor = _NUM_SLICES
        else:  # XLA knows the number of rows when it compiles.
            count = 1 + (_NUM_SLICES - 1) * ops.cast(ops.equal(num_rows, 1), "int32")
        # (N, D) -> (C, N, D / C), and (D, units) -> (C, D / C, units), which moves nothing
        rows = ops.transpose(ops.reshape(x, (num_rows, count, -1)), (1, 0, 2))
        slices = ops.reshape(self.kernel, (count, -1, self.units))
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
