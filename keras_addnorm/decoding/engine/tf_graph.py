"""The engine for TensorFlow without XLA: dynamic shapes, writes in place, and few operations.

A step of a search is hundreds of operations of microseconds each. Its time depends on their number,
and on whether threads wait for each other.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from keras import ops

from keras_addnorm.decoding.engine import tf_ops
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
from keras_addnorm.layers.attention import MultiHeadCrossAttention, MultiHeadSelfAttention
from keras_addnorm.layers.masks import masked_softmax
from keras_addnorm.layers.projection import Projection
from keras_addnorm.layers.shapes import first_size, leading_sizes, size_of
from keras_addnorm.layers.ssru import SSRU

Tensor = Any

# Growing caches with dynamic shapes: one loop serves all cache lengths and batch sizes. The cache
# doubles whenever it is full, and finished sentences are dropped from the batch once they are half
# of it.
_FIRST, _GROWTH = 32, 2
"""The first cache length, and the factor from each length to the next."""


def _update(found: Hypotheses, new: Hypotheses, sentences: Tensor) -> Hypotheses:
    """Return the hypotheses, those of some sentences replaced by new ones."""
    places = ops.expand_dims(sentences, -1)
    return Hypotheses(
        ops.scatter_update(found.sequences, places, new.sequences),
        ops.scatter_update(found.scores, places, new.scores),
        ops.minimum(found.bad_step, new.bad_step),
    )


@dataclasses.dataclass(frozen=True)
class TFGraphEngine(Engine):
    """The engine for TensorFlow without XLA."""

    @property
    def layout(self) -> CacheLayout:
        """The layout that is written in place."""
        return InPlaceKeyValues

    @property
    def embedding(self) -> type[TransposedEmbedding]:
        """The view that always reads the transposed table: oneDNN would transpose it each time."""
        return TransposedEmbedding

    def substitute_for(self, layer: Any) -> Substitute | None:
        """Fuse the projections of self-attention and SSRU, and avoid oneDNN."""
        if type(layer) is MultiHeadSelfAttention:
            return fused_self_attention(layer)
        if type(layer) is MultiHeadCrossAttention:
            return Substitute(GraphCrossAttention)
        if type(layer) is SSRU:
            return fused_ssru(layer)
        return None

    def open_sizes(self, source_ids: Tensor) -> Tensor:
        """Hide the sizes: the loop changes the number of sentences."""
        return tf_ops.hide_static_shape(source_ids)

    def first_length(self, longest: int, source_length: int | Tensor = 0) -> Tensor:
        """Return a length that is unknown while the loop is traced."""
        return tf_ops.hide_static_shape(min(_FIRST, longest))

    def run_with_growing_cache(
        self, growing: GrowingLoop[AnyState], state: AnyState, inputs: SearchInputs
    ) -> Hypotheses:
        """Run one loop for all lengths and batches, on the sentences that are unfinished."""
        longest, number = inputs.max_length, inputs.batch_size

        def run_stage(
            sentences: Tensor, length: Tensor, state: AnyState, found: Hypotheses
        ) -> tuple[Tensor, Tensor, AnyState, Hypotheses]:
            size, loop = ops.shape(sentences)[0], growing.loop_of(inputs.of(sentences))
            state = run_until_few(loop, state, size // 2, length)
            found = _update(found, loop.hypotheses(state), sentences)
            (going,) = ops.nonzero(loop.is_running(state))
            longer = ops.minimum(_GROWTH * length, ops.cast(longest, "int32"))
            length = ops.where(state.index < length, length, longer)
            state = select_sentences(state, going, size)
            state = state._replace(cache=growing.grow(state.cache, length))
            return take(sentences, going), length, state, found

        def goes_on(
            sentences: Tensor, length: Tensor, state: AnyState, found: Hypotheses
        ) -> Tensor:
            return ops.logical_and(ops.shape(sentences)[0] > 0, state.index < longest)

        nothing = Hypotheses(
            ops.full((number, growing.num_hypotheses, longest), inputs.ids.pad_id, dtype="int32"),
            ops.zeros((number, growing.num_hypotheses), dtype="float32"),
            ops.convert_to_tensor(longest, dtype="int32"),
        )
        start = (ops.arange(number, dtype="int32"), self.first_length(longest), state, nothing)
        *_, found = ops.while_loop(goes_on, run_stage, start)
        return found

    def fill_columns(self, x: Tensor, columns: tuple[int, ...], value: float) -> Tensor:
        """Write the value over the columns, in place."""
        filled = ops.full_like(x[:, :1], value)
        for column in columns:
            if 0 <= column < x.shape[-1]:
                x = tf_ops.update_slice(x, filled, 1, column)
        return x

    def argmax(self, x: Tensor) -> Tensor:
        """Return TensorFlow's argmax, one pass over the numbers."""
        return tf_ops.argmax(x)


@dataclasses.dataclass(frozen=True)
class InPlaceKeyValues:
    """Keys and values in the layout of `TransposedKV`, batch and heads as two axes.

    Products have the shape that attention reads, so no operation computes a shape. `CacheLayout`
    documents the arguments.

    Args:
        stored: Keys `(B, G, K, S n)` and values `(B, G, S n, K)`.
        num_groups: Number of heads, G.
        slots: `(S n,)`, or `None`.
        rows_per_beam: Number of hypotheses that write at a position, n.
        is_one_beam: Whether rows are grouped by sentence already.
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
            ops.zeros((batch, groups, width, length), dtype=dtype),
            ops.zeros((batch, groups, length, width), dtype=dtype),
        )

    @staticmethod
    def transpose(keys: Tensor, values: Tensor, dtype: Any) -> TransposedKV:
        """Return keys and values of `(B, S, G, K)` in this layout."""
        keys, values = ops.cast(keys, dtype), ops.cast(values, dtype)
        if keys.shape[1] == 1:
            groups, width = keys.shape[2:]
            keys = ops.reshape(keys, (-1, groups, width, 1))
        else:
            keys = tf_ops.transpose(keys, (0, 2, 3, 1))
        return TransposedKV(keys, _swap_heads_and_positions(values))

    @staticmethod
    def write_state(state: Tensor, new: Tensor) -> Tensor:
        """Write the new state over the old one, a column by which exports know the loop."""
        rows, column = ops.reshape(state, (-1, 1)), ops.reshape(new, (-1, 1))
        return ops.reshape(tf_ops.update_slice(rows, column, 1, 0), (-1, state.shape[1]))

    @property
    def cache(self) -> InPlaceKeyValues:
        """The object itself."""
        return self

    def query_positions(self, num_queries: int | Tensor, index: Any) -> Tensor:
        """Return `index` for each hypothesis of a beam."""
        return ops.zeros((self.rows_per_beam,), dtype="int32") + index

    def extend(self, keys: Tensor, values: Tensor, index: Any) -> InPlaceKeyValues:
        """Return this with one position more of each hypothesis, `(B, n, G, K)`.

        An update of a matrix takes half the time of one of four axes.
        """
        count, groups, width = keys.shape[1:]
        new, num_slots = (
            self.transpose(keys, values, self.stored.keys.dtype),
            size_of(self.slots, 0),
        )

        def update(cache: Tensor, part: Tensor, slot: int, shape: tuple[Any, ...]) -> Tensor:
            rows = ops.reshape(cache, (-1, num_slots * slot))
            part = ops.reshape(part, (-1, count * slot))
            rows = tf_ops.update_slice(rows, part, 1, index * (count * slot))
            return ops.reshape(rows, shape)

        stored = TransposedKV(
            update(self.stored.keys, new.keys, 1, (-1, groups, width, num_slots)),
            update(self.stored.values, new.values, width, (-1, groups, num_slots, width)),
        )
        return dataclasses.replace(self, stored=stored)

    def key_positions(self) -> Tensor:
        """Return the position of each slot."""
        return self.slots

    def group_rows(self, queries: Tensor) -> Tensor:
        """Return the queries of all beams of a sentence as those of one row."""
        if self.is_one_beam:
            return queries
        return ops.reshape(queries, (ops.shape(self.stored.keys)[0], -1, *queries.shape[2:]))

    def scores(self, queries: Tensor) -> Tensor:
        """Return the product of each query with each key."""
        keys, num_heads, length = self.stored.keys, queries.shape[2], size_of(queries, 1)
        by_head = _swap_heads_and_positions(queries)
        if num_heads == self.num_groups:
            return tf_ops.matmul_by_row(by_head, keys)
        # (B, H, T, K) -> (B, G, H/G T, K)
        shape = (self.num_groups, num_heads // self.num_groups * length, queries.shape[3])
        rows = ops.reshape(by_head, (first_size(queries, length), *shape))
        found, num_keys = tf_ops.matmul_by_row(rows, keys), size_of(keys, 3)
        batch = first_size(queries, length, num_keys)
        return ops.reshape(found, (batch, num_heads, length, num_keys))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum of the values for each query."""
        values, num_heads = self.stored.values, weights.shape[1]
        if num_heads == self.num_groups:
            return _swap_heads_and_positions(tf_ops.matmul_by_row(weights, values))
        # (B, H, T, S) -> (B, G, H/G T, S)
        length, num_keys = size_of(weights, 2), size_of(weights, 3)
        shape = (self.num_groups, num_heads // self.num_groups * length, num_keys)
        rows = ops.reshape(weights, (first_size(values, length, num_keys), *shape))
        sums, batch = tf_ops.matmul_by_row(rows, values), first_size(weights, length)
        by_head = ops.reshape(sums, (batch, num_heads, length, values.shape[3]))
        return _swap_heads_and_positions(by_head)

    def keys_and_values(self) -> tuple[Tensor, Tensor]:
        """Return keys and values, `(B, S, G, K)` each."""
        keys, values = self.stored
        return ops.transpose(keys, (0, 3, 1, 2)), ops.transpose(values, (0, 2, 1, 3))


class FusedSelfAttention(MultiHeadSelfAttention):
    """A view of a self-attention with one product for queries, keys and values (fused QKV).

    TensorFlow gives independent products to other threads, and handing them over takes longer than
    the product of one row. The view has these attributes besides the layer's own: `qkv_kernel`,
    `(D, (H + 2 G) K)`, and `qkv_bias`, or `None`.
    """

    qkv_kernel: Tensor
    qkv_bias: Tensor | None

    def _project(self, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        units = [one.units for one in _projections(self)]
        leading = leading_sizes(x, len(x.shape) - 1)
        # (..., D) -> (N, D) -> (N, units) -> (..., units)
        y = ops.cast(x, self.qkv_kernel.dtype)
        y = ops.matmul(ops.reshape(y, (-1, x.shape[-1])), self.qkv_kernel)
        y = y if self.qkv_bias is None else ops.add(y, self.qkv_bias)
        if len(set(units)) == 1:
            parts = ops.split(y, len(units), axis=-1)
        else:  # `ops.split` would compute the sizes of the parts at each step.
            ends = [0, *itertools.accumulate(units)]
            parts = [y[:, start:end] for start, end in itertools.pairwise(ends)]
        queries, keys, values = (ops.reshape(part, (*leading, part.shape[-1])) for part in parts)
        return self._as_queries(queries, at), *self._as_keys_values(keys, values, at)

    def _weights(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return _weights_without_onednn(self, logits, mask)


class SeparateSelfAttention(MultiHeadSelfAttention):
    """A view of a self-attention with quantised projections, which have separate scales."""

    def _weights(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return _weights_without_onednn(self, logits, mask)


class GraphCrossAttention(MultiHeadCrossAttention):
    """A view of a cross-attention that does not use oneDNN's softmax."""

    def _weights(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return _weights_without_onednn(self, logits, mask)


class FusedSSRU(SSRU):
    """A view of an SSRU with one product for values and gate, as that of `FusedSelfAttention`.

    It has these attributes besides the layer's own: `kernel`, `(D, 2 D)`, and `gate_bias`, or
    `None`.
    """

    kernel: Tensor
    gate_bias: Tensor | None

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = ops.matmul(ops.reshape(ops.cast(x, self.kernel.dtype), (-1, x.shape[-1])), self.kernel)
        values, gate = ops.split(y, 2, axis=-1)
        gate = gate if self.gate_bias is None else ops.add(gate, self.gate_bias)
        shape = (*leading_sizes(x, 2), x.shape[-1])
        return ops.reshape(values, shape), ops.reshape(gate, shape)


def fused_ssru(layer: SSRU) -> Substitute | None:
    """Return the substitute of an SSRU; none of a quantised one, which has separate scales."""
    projections = [layer.cell_projection, layer.forget_projection]
    if any(one.quantization_mode for one in projections):
        return None
    dtype = layer.compute_dtype
    kernel = ops.concatenate([ops.cast(one.kernel, dtype) for one in projections], axis=1)
    bias = layer.forget_projection.bias
    return Substitute(
        FusedSSRU,
        {"kernel": kernel, "gate_bias": None if bias is None else ops.cast(bias, dtype)},
    )


def fused_self_attention(layer: MultiHeadSelfAttention) -> Substitute:
    """Return the substitute of a self-attention."""
    projections = _projections(layer)
    if any(one.quantization_mode for one in projections):
        return Substitute(SeparateSelfAttention)
    dtype = projections[0].compute_dtype
    # `kernel` is the merged one of a layer with LoRA.
    kernel = ops.concatenate([ops.cast(one.kernel, dtype) for one in projections], axis=1)
    bias = None
    if layer.use_bias:
        bias = ops.concatenate([ops.cast(one.bias, dtype) for one in projections])
    return Substitute(FusedSelfAttention, {"qkv_kernel": kernel, "qkv_bias": bias})


def _projections(layer: MultiHeadSelfAttention) -> list[Projection]:
    return [layer.query_projection, layer.key_projection, layer.value_projection]


def _weights_without_onednn(layer: Any, logits: Tensor, mask: Tensor | None) -> Tensor:
    return masked_softmax(
        logits, mask, layer._sink_logits(logits.dtype), layer.compute_dtype, _softmax
    )


def _softmax(logits: Tensor) -> Tensor:
    return ops.exp(ops.log_softmax(logits, axis=-1))


def _swap_heads_and_positions(x: Tensor) -> Tensor:
    """Swap the second and the third of four axes, by a reshape where one of them has size 1."""
    first, second, width = x.shape[1:]
    if None in (first, second) or 1 not in (first, second):
        return tf_ops.transpose(x, (0, 2, 1, 3))
    return ops.reshape(x, (-1, second, first, width))
